package egress

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/internal/netrule"
)

// Bounds of an HTTP/1 request.
const (
	maxHead      = 16 << 10 // bytes of the request line and the headers
	maxChunkLine = 256      // bytes of the line before a chunk
	maxTrailer   = 16 << 10 // bytes of the headers behind the last chunk
)

const (
	errHead      refusal = "the HTTP request is malformed"
	errHeadSlow  refusal = "the headers of the HTTP request come too slowly"
	errHeadLong  refusal = "the headers of the HTTP request are too long"
	errHost      refusal = "the HTTP request does not name one host"
	errFraming   refusal = "the HTTP request does not say clearly where it ends"
	errChunk     refusal = "the body of the HTTP request is malformed"
	errConnect   refusal = "CONNECT is not passed on under rules by name"
	errHTTP2     refusal = "HTTP/2 without TLS is not passed on under rules by name"
	errAuthority refusal = "the HTTP request names another host in its address than in Host"
)

// request is what matters of the head of an HTTP/1 request, and the head as it is
// passed on.
type request struct {
	host      string // canonical; "" where it is the address in literal
	literal   netip.Addr
	length    int64 // of the body
	chunked   bool
	webSocket bool
	head      []byte
}

// parseHead reads the head of a request, from the request line to the empty line.
// It accepts one way of writing each thing, so that whoever reads it after us reads
// the same: lines end with CR LF, headers are not folded, there is one Host and one
// statement of the length. A wish to upgrade to anything but a WebSocket is taken
// out, and all are unless upgrade is set.
func parseHead(head []byte, upgrade bool) (request, error) {
	r := request{}
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	authority, old, err := requestLine(lines[0])
	if err != nil {
		return r, err
	}
	r.head = append(append(r.head, lines[0]...), "\r\n"...)
	f := fields{}
	for _, line := range lines[1:] {
		name, value, err := field(line)
		if err != nil {
			return r, err
		}
		f.add(name, value)
		if name == "upgrade" && !(upgrade && strings.EqualFold(value, "websocket")) || name == "http2-settings" {
			continue
		}
		r.webSocket = r.webSocket || name == "upgrade"
		r.head = append(append(r.head, line...), "\r\n"...)
	}
	r.head = append(r.head, "\r\n"...)
	if len(f.host) != 1 {
		return r, errHost
	}
	var ok bool
	if r.host, r.literal, ok = parseHost(f.host[0]); !ok {
		return r, errHost
	}
	if authority != "" {
		host, literal, ok := parseHost(authority)
		if !ok || host != r.host || literal != r.literal {
			return r, errAuthority
		}
	}
	r.length, r.chunked, err = f.framing(old)
	return r, err
}

// requestLine checks the first line. It gives the host of a target that is a whole
// URL, and whether the request is of HTTP/1.0.
func requestLine(line string) (authority string, old bool, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !token(parts[0]) || parts[1] == "" || !clean(parts[1]) {
		return "", false, errHead
	}
	method, target, version := parts[0], parts[1], parts[2]
	switch {
	case version == "HTTP/2.0":
		return "", false, errHTTP2
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return "", false, errHead
	case strings.EqualFold(method, "CONNECT"):
		return "", false, errConnect
	case target[0] == '/', target == "*" && method == "OPTIONS":
		return "", version == "HTTP/1.0", nil
	}
	const scheme = "http://"
	if len(target) <= len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return "", false, errHead
	}
	authority, _, _ = strings.Cut(target[len(scheme):], "/")
	authority, _, _ = strings.Cut(authority, "?")
	if authority == "" {
		return "", false, errHead
	}
	return authority, version == "HTTP/1.0", nil
}

// field splits a header line. A line without a name, or with space around it, is
// where parsers differ.
func field(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !token(name) {
		return "", "", errHead
	}
	for i := range len(value) {
		if c := value[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return "", "", errHead
		}
	}
	return strings.ToLower(name), strings.Trim(value, " \t"), nil
}

// fields are the headers that a request is understood by.
type fields struct{ host, length, encoding []string }

func (f *fields) add(name, value string) {
	switch name {
	case "host":
		f.host = append(f.host, value)
	case "content-length":
		f.length = append(f.length, value)
	case "transfer-encoding":
		f.encoding = append(f.encoding, value)
	default:
		// Some servers read an underscore as a dash.
		switch strings.ReplaceAll(name, "_", "-") {
		case "content-length":
			f.length = append(f.length, value, "")
		case "transfer-encoding":
			f.encoding = append(f.encoding, value, "")
		}
	}
}

// framing says how long the body is.
func (f *fields) framing(old bool) (length int64, chunked bool, err error) {
	switch {
	case len(f.encoding) > 0:
		if old || len(f.length) > 0 || len(f.encoding) > 1 || !strings.EqualFold(f.encoding[0], "chunked") {
			return 0, false, errFraming
		}
		return 0, true, nil
	case len(f.length) == 0:
		return 0, false, nil
	case len(f.length) > 1 || strings.Trim(f.length[0], "0123456789") != "":
		return 0, false, errFraming
	}
	length, err = strconv.ParseInt(f.length[0], 10, 64)
	if err != nil {
		return 0, false, errFraming
	}
	return length, false, nil
}

// parseHost reads name[:port] or address[:port].
func parseHost(s string) (name string, literal netip.Addr, ok bool) {
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && port != "" { // an empty port is the usual one
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strings.Trim(port, "0123456789") != "" {
			return "", literal, false
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return "", a, true
	}
	name, ok = netrule.Name(host)
	return name, literal, ok
}

// parseChunk reads the line before a chunk, without its end: the length in hex.
// Extensions are dropped; no known program needs them, and parsers differ.
func parseChunk(line []byte) (int64, error) {
	size, extension, _ := bytes.Cut(line, []byte(";"))
	if !clean(strings.NewReplacer(" ", "", "\t", "").Replace(string(extension))) {
		return 0, errChunk
	}
	digits := string(bytes.TrimRight(size, " \t"))
	if digits == "" || len(digits) > 15 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, errChunk
	}
	n, err := strconv.ParseInt(digits, 16, 64)
	if err != nil {
		return 0, errChunk
	}
	return n, nil
}

// token reports whether s is a name of a header or a method.
func token(s string) bool {
	for i := range len(s) {
		if !tokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func tokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// clean reports whether s has neither spaces nor control characters.
func clean(s string) bool {
	for i := range len(s) {
		if s[i] <= 0x20 || s[i] == 0x7f {
			return false
		}
	}
	return true
}
