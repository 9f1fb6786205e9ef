package egress

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// attackRules allow some names and nothing else.
var attackRules = api.NetworkRules{
	Allow: []string{
		"packages.example.com:443", "packages.example.com:80", "*.good.example", "db.example:5432", "cdn.example:8443", "cdn.example:443",
		"rebind.example", "anyport.example",
	},
	Deny: []string{"bad.good.example"},
}

var attackZone = map[string][]string{
	"packages.example.com":          {"203.0.113.20"},
	"evil.com":                      {"203.0.113.66"},
	"packages.example.com.evil.com": {"203.0.113.66"},
	"evil-packages.example.com":     {"203.0.113.66"},
	"www.good.example":              {"203.0.113.30"},
	"a.b.good.example":              {"=www.good.example"},
	"db.example":                    {"203.0.113.40"},
	"cdn.example":                   {"203.0.113.50"},
	"anyport.example":               {"203.0.113.60"},
	"rebind.example":                {"169.254.169.254"},
	"mixed.good.example":            {"127.0.0.1", "203.0.113.31", "10.200.0.2"},
	"private.good.example":          {"10.200.0.2"},
	"loop.good.example":             {"127.0.0.1"},
}

// attack is one thing that code in a sandbox tries. Where reason is set it must be
// refused with that; where reaches is, its bytes must arrive there and nowhere else.
type attack struct {
	what    string
	entry   string   // one more that allows
	to      string   // where the sandbox connects to
	asks    string   // a name that it resolves first
	send    []string // with pauses between
	wait    bool     // longer than for a server to speak first
	reason  string
	reaches string
	never   string // what no server may have received
}

const evilAddress, sharedAddress = "203.0.113.66", "203.0.113.20"

var tlsAttacks = []attack{
	{what: "the name and its address", to: "203.0.113.20:443", asks: "packages.example.com", send: []string{hello(sni("packages.example.com"))}, reaches: "203.0.113.20:443"},
	{what: "the name in capitals", to: "203.0.113.20:443", send: []string{hello(sni("PacKages.Example.COM"))}, reaches: "203.0.113.20:443"},
	{what: "the name with a dot", to: "203.0.113.20:443", send: []string{hello(sni("packages.example.com."))}, reaches: "203.0.113.20:443"},
	{what: "an allowed name on an address of one's own", to: evilAddress + ":443", send: []string{hello(sni("packages.example.com"))}, reaches: "203.0.113.20:443"},
	{what: "an allowed name on an address that is another allowed name's", to: "203.0.113.50:443", asks: "cdn.example", send: []string{hello(sni("packages.example.com"))}, reaches: "203.0.113.20:443"},
	{what: "an allowed name on the metadata address", to: "169.254.169.254:443", send: []string{hello(sni("packages.example.com"))}, reaches: "203.0.113.20:443"},
	{what: "another name on a shared address", to: sharedAddress + ":443", asks: "packages.example.com", send: []string{hello(sni("evil.com"))}, reason: "rules"},
	{what: "another name on a shared address, resolved before", to: sharedAddress + ":443", asks: "evil.com", send: []string{hello(sni("evil.com"))}, reason: "rules"},
	{what: "no name", to: sharedAddress + ":443", asks: "packages.example.com", send: []string{hello()}, reason: "rules"},
	{what: "no name on an address of one's own", to: evilAddress + ":443", send: []string{hello()}, reason: "rules"},
	{what: "an empty name", to: sharedAddress + ":443", send: []string{hello(sni(""))}, reason: "one host"},
	{what: "an address for a name", to: sharedAddress + ":443", asks: "packages.example.com", send: []string{hello(sni("203.0.113.20"))}, reason: "one host"},
	{what: "a NUL behind the name", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com\x00.evil.com"))}, reason: "one host"},
	{what: "a NUL at the end", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com\x00"))}, reason: "one host"},
	{what: "two dots at the end", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com.."))}, reason: "one host"},
	{what: "a name in another script", to: sharedAddress + ":443", send: []string{hello(sni("pасkages.example.com"))}, reason: "one host"},
	{what: "a name that ends alike", to: evilAddress + ":443", send: []string{hello(sni("evil-packages.example.com"))}, reason: "rules"},
	{what: "a name that begins alike", to: evilAddress + ":443", send: []string{hello(sni("packages.example.com.evil.com"))}, reason: "rules"},
	{what: "the name that a star stands before", to: "203.0.113.30:443", send: []string{hello(sni("good.example"))}, reason: "rules"},
	{what: "a name far below a star", to: evilAddress + ":443", send: []string{hello(sni("a.b.good.example"))}, reaches: "203.0.113.30:443"},
	{what: "a star as the name", to: evilAddress + ":443", send: []string{hello(sni("*.good.example"))}, reason: "one host"},
	{what: "a name that is denied below a star", to: evilAddress + ":443", send: []string{hello(sni("bad.good.example"))}, reason: "rules"},
	{what: "a name on a port it does not have", to: "203.0.113.20:8443", asks: "packages.example.com", send: []string{hello(sni("packages.example.com"))}, reason: "rules"},
	{what: "a name that resolves to the metadata address", to: "203.0.113.20:443", send: []string{hello(sni("rebind.example"))}, reason: "no address"},
	{what: "a name that resolves to the host", to: "127.0.0.1:443", send: []string{hello(sni("loop.good.example"))}, reason: "no address"},
	{what: "a name that resolves to a neighbour", to: "10.200.0.2:443", send: []string{hello(sni("private.good.example"))}, reason: "no address"},
	{what: "a name that resolves to the host and to a server", to: "127.0.0.1:443", send: []string{hello(sni("mixed.good.example"))}, reaches: "203.0.113.31:443"},
	{what: "ECH", to: sharedAddress + ":443", asks: "packages.example.com", send: []string{hello(sni("packages.example.com"), extension(extECH, "\x00abc"))}, reason: "encrypted_client_hello"},
	{what: "ECH, inner", to: sharedAddress + ":443", send: []string{hello(extension(extECH, "\x01"), sni("packages.example.com"))}, reason: "encrypted_client_hello"},
	{what: "ESNI", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com"), extension(extESNI, "abc"))}, reason: "encrypted_client_hello"},
	{what: "two names in one list", to: sharedAddress + ":443", send: []string{hello(extension(0, len16("\x00"+len16("packages.example.com")+"\x00"+len16("evil.com"))))}, reason: "one host"},
	{what: "two lists", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com"), sni("evil.com"))}, reason: "one host"},
	{what: "a name of another kind", to: sharedAddress + ":443", send: []string{hello(extension(0, len16("\x01"+len16("packages.example.com"))))}, reason: "one host"},
	{what: "two hellos in one record", to: sharedAddress + ":443", send: []string{record(hello(sni("packages.example.com"))[5:] + hello(sni("evil.com"))[5:])}, reason: "more than one"},
	{what: "two hellos in two records", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com")) + hello(sni("evil.com"))}, reason: "more than one"},
	{what: "an allowed hello in records of one byte", to: evilAddress + ":443", send: []string{fragmented(hello(sni("packages.example.com")), 1)}, reaches: "203.0.113.20:443"},
	{what: "another hello in records of one byte", to: sharedAddress + ":443", send: []string{fragmented(hello(sni("evil.com")), 1)}, reason: "rules"},
	{what: "another hello in many packets", to: sharedAddress + ":443", asks: "packages.example.com", send: strings.SplitAfter(hello(sni("evil.com")), "r"), reason: "rules", never: "evil"},
	{what: "a hello that is too long", to: sharedAddress + ":443", send: []string{record("\x01\x01\x00\x00" + strings.Repeat("x", 9000)), record(strings.Repeat("x", 9000))}, reason: "too long"},
	{what: "empty records for ever", to: sharedAddress + ":443", send: []string{strings.Repeat(record(""), 20)}, reason: "malformed"},
	{what: "a hello that never ends", to: sharedAddress + ":443", send: []string{hello(sni("packages.example.com"))[:40]}, reason: "malformed"},
	{what: "another message than a hello", to: sharedAddress + ":443", asks: "packages.example.com", send: []string{record("\x02\x00\x00\x00")}, reason: "malformed"},
	{what: "an extension that is longer than the hello", to: sharedAddress + ":443", send: []string{hello("\x00\x00\xff\xff")}, reason: "malformed"},
	{what: "a hello of SSL 2", to: sharedAddress + ":443", asks: "packages.example.com", send: []string{"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"}, reason: "rules"},
	{what: "silence, then another name, on a port of its own", to: "203.0.113.50:8443", asks: "cdn.example", wait: true, send: []string{hello(sni("evil.com"))}, reason: "rules", never: "evil"},
	{what: "silence, then the name, on a port of its own", to: "203.0.113.50:8443", asks: "cdn.example", wait: true, send: []string{hello(sni("cdn.example"))}, reaches: "203.0.113.50:8443"},
}

var httpAttacks = []attack{
	{what: "the name", to: "203.0.113.20:80", asks: "packages.example.com", send: []string{get + "Host: packages.example.com\r\n\r\n"}, reaches: "203.0.113.20:80"},
	{what: "the name with a port, in capitals", to: evilAddress + ":80", send: []string{get + "HOST:  Packages.EXAMPLE.com:80 \r\n\r\n"}, reaches: "203.0.113.20:80"},
	{what: "an allowed name on an address of one's own", to: evilAddress + ":80", send: []string{get + "Host: packages.example.com\r\n\r\n"}, reaches: "203.0.113.20:80"},
	{what: "another name on a shared address", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{get + "Host: evil.com\r\n\r\n"}, reason: "rules"},
	{what: "no name", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{get + "\r\n"}, reason: "one host"},
	{what: "HTTP/1.0 without a name", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{"GET / HTTP/1.0\r\n\r\n"}, reason: "one host"},
	{what: "HTTP/0.9", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{"GET /\r\n\r\n"}, reason: "malformed"},
	{what: "an empty name", to: sharedAddress + ":80", send: []string{get + "Host:\r\n\r\n"}, reason: "one host"},
	{what: "an address for a name", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{get + "Host: 203.0.113.20\r\n\r\n"}, reason: "rules"},
	{what: "two names", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com\r\nHost: evil.com\r\n\r\n"}, reason: "one host"},
	{what: "two names in one line", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com, evil.com\r\n\r\n"}, reason: "one host"},
	{what: "a user before the name", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com@evil.com\r\n\r\n"}, reason: "one host"},
	{what: "a port that is a name", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com:@evil.com\r\n\r\n"}, reason: "one host"},
	{what: "a folded name", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com\r\n evil.com\r\n\r\n"}, reason: "malformed"},
	{what: "a space before the colon", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com\r\nHost : evil.com\r\n\r\n"}, reason: "malformed"},
	{what: "a name behind a bare LF", to: sharedAddress + ":80", send: []string{get + "X: 1\nHost: evil.com\r\nHost: packages.example.com\r\n\r\n"}, reason: "malformed"},
	{what: "a name behind a bare CR", to: sharedAddress + ":80", send: []string{get + "X: 1\rHost: evil.com\r\nHost: packages.example.com\r\n\r\n"}, reason: "malformed"},
	{what: "a NUL in a header", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com\r\nX: \x00\r\n\r\n"}, reason: "malformed"},
	{what: "a whole URL of another host", to: sharedAddress + ":80", send: []string{"GET http://evil.com/ HTTP/1.1\r\nHost: packages.example.com\r\n\r\n"}, reason: "another host"},
	{what: "a whole URL with a user", to: sharedAddress + ":80", send: []string{"GET http://packages.example.com@evil.com/ HTTP/1.1\r\nHost: packages.example.com\r\n\r\n"}, reason: "another host"},
	{what: "a whole URL with a backslash", to: sharedAddress + ":80", send: []string{"GET http://packages.example.com\\@evil.com/ HTTP/1.1\r\nHost: packages.example.com\r\n\r\n"}, reason: "another host"},
	{what: "a whole URL of another kind", to: sharedAddress + ":80", send: []string{"GET ftp://packages.example.com/ HTTP/1.1\r\nHost: packages.example.com\r\n\r\n"}, reason: "malformed"},
	{what: "a whole URL of the same host", to: evilAddress + ":80", send: []string{"GET http://PACKAGES.example.com/x HTTP/1.1\r\nHost: packages.example.com\r\n\r\n"}, reaches: "203.0.113.20:80"},
	{what: "CONNECT", to: sharedAddress + ":80", send: []string{"CONNECT evil.com:443 HTTP/1.1\r\nHost: packages.example.com\r\n\r\n"}, reason: "CONNECT"},
	{what: "HTTP/2", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, reason: "HTTP/2"},
	{what: "HTTP/2 on a port of its own", to: "203.0.113.50:8443", asks: "cdn.example", send: []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, reason: "HTTP/2"},
	{what: "another name on a port of its own", to: "203.0.113.50:8443", asks: "cdn.example", send: []string{get + "Host: evil.com\r\n\r\n"}, reason: "rules"},
	{what: "another name behind empty lines", to: "203.0.113.50:8443", asks: "cdn.example", send: []string{"\r\n\n \r\n" + get + "Host: evil.com\r\n\r\n"}, reason: "malformed", never: "evil"},
	{what: "another name behind many empty lines", to: "203.0.113.50:8443", asks: "cdn.example", send: []string{strings.Repeat("\r\n", 50), get + "Host: evil.com\r\n\r\n"}, reason: "malformed", never: "evil"},
	{what: "a method that nobody knows", to: "203.0.113.50:8443", asks: "cdn.example", send: []string{"FOO\t/ HTTP/1.1\nHost: evil.com\n\n"}, reason: "malformed", never: "evil"},
	{what: "a request that comes slowly", to: "203.0.113.50:8443", asks: "cdn.example", wait: true, send: []string{"FO", "O / HT", "TP/1.1\r\nHost: evil.com\r\n\r\n"}, reason: "rules", never: "evil"},
	{what: "a second request of another name", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com\r\n\r\n" + get + "Host: evil.com\r\n\r\n"}, reason: "rules", never: "evil"},
	{what: "a third request of another name, later", to: sharedAddress + ":80", send: []string{get + "Host: packages.example.com\r\n\r\n", get + "Host: packages.example.com\r\n\r\n", get + "Host: evil.com\r\n\r\n"}, reason: "rules", never: "evil"},
	{what: "a second request behind a body", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent-Length: 5\r\n\r\nhello" + get + "Host: evil.com\r\n\r\n"}, reason: "rules", never: "evil"},
	{what: "a second request behind chunks", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhel", "lo\r\n0\r\nTrailer: x\r\n\r\n" + get + "Host: evil.com\r\n\r\n"}, reason: "rules", never: "evil"},
	{what: "both kinds of length", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get + "Host: evil.com\r\n\r\n"}, reason: "where it ends", never: "evil"},
	{what: "two lengths", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\n" + get + "Host: evil.com\r\n\r\n"}, reason: "where it ends", never: "evil"},
	{what: "a length with a sign", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent-Length: +60\r\n\r\n"}, reason: "where it ends"},
	{what: "a length in a list", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent-Length: 0, 60\r\n\r\n"}, reason: "where it ends"},
	{what: "a length that is too large", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent-Length: 99999999999999999999\r\n\r\n"}, reason: "where it ends"},
	{what: "a length with an underscore", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nContent_Length: 60\r\n\r\n"}, reason: "where it ends"},
	{what: "an encoding that is nearly chunked", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n"}, reason: "where it ends"},
	{what: "chunked and another encoding", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"}, reason: "where it ends"},
	{what: "chunked in HTTP/1.0", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.0\r\nHost: packages.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"}, reason: "where it ends"},
	{what: "a chunk with a sign", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"}, reason: "body"},
	{what: "a chunk that ends with LF", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"}, reason: "body"},
	{what: "a chunk that is longer than it says", to: sharedAddress + ":80", send: []string{"POST / HTTP/1.1\r\nHost: packages.example.com\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n"}, reason: "body"},
	{what: "headers for ever", to: sharedAddress + ":80", send: []string{get + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 70)}, reason: "too long"},
	{what: "an upgrade to HTTP/2", to: evilAddress + ":80", send: []string{get + "Host: packages.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"}, reaches: "203.0.113.20:80", never: "h2c"},
	{what: "an upgrade in the second request", to: evilAddress + ":80", send: []string{get + "Host: packages.example.com\r\n\r\n" + get + "Host: packages.example.com\r\nUpgrade: websocket\r\n\r\n"}, reaches: "203.0.113.20:80", never: "websocket"},
}

var otherAttacks = []attack{
	{what: "a database on a port of its own", to: "203.0.113.40:5432", asks: "db.example", send: []string{"\x00\x00\x00\x08\x04\xd2\x16\x2f"}, reaches: "203.0.113.40:5432"},
	{what: "a line of text on a port of its own", to: "203.0.113.40:5432", asks: "db.example", send: []string{"PING now\r\n"}, reaches: "203.0.113.40:5432"},
	{what: "a database that was resolved before we lived", to: "203.0.113.40:5432", send: []string{"\x00\x00\x00\x08"}, reaches: "203.0.113.40:5432"},
	{what: "a database below a star that was not resolved", entry: "*.db.example:5433", to: "203.0.113.40:5433", send: []string{"\x00\x00\x00\x08"}, reason: "rules"},
	{what: "the database's port on another address", to: evilAddress + ":5432", asks: "db.example", send: []string{"\x00\x00\x00\x08"}, reason: "rules"},
	{what: "another port of the database", to: "203.0.113.40:5433", asks: "db.example", send: []string{"\x00\x00\x00\x08"}, reason: "rules"},
	{what: "an entry without a port", to: "203.0.113.60:5432", asks: "anyport.example", send: []string{"\x00\x00\x00\x08"}, reason: "rules"},
	{what: "something on port 443 of a shared address", to: "203.0.113.50:443", asks: "cdn.example", send: []string{"\x00\x00\x00\x08"}, reason: "rules"},
	{what: "a line on port 80 of a shared address", to: sharedAddress + ":80", asks: "packages.example.com", send: []string{"PING\r\n"}, reason: "rules"},
	{what: "SSH to an address that is allowed", entry: "198.51.100.0/28:22", to: "198.51.100.1:22", send: []string{"SSH-2.0-x\r\n"}, reaches: "198.51.100.1:22"},
	{what: "SSH to another address", entry: "198.51.100.0/28:22", to: "198.51.100.16:22", send: []string{"SSH-2.0-x y\r\n"}, reason: "rules"},
	{what: "DNS over TCP to another resolver", to: "203.0.113.53:53", send: []string{"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04evil\x03com\x00\x00\x01\x00\x01"}, reason: "rules"},
	{what: "DNS over TLS", to: "203.0.113.53:853", send: []string{hello(sni("dns.example"))}, reason: "rules"},
	{what: "DNS over TLS without a name", to: "203.0.113.53:853", send: []string{hello()}, reason: "rules"},
	{what: "DNS over HTTPS by address", to: "203.0.113.53:443", send: []string{hello()}, reason: "rules"},
	{what: "DNS over HTTPS by name", to: "203.0.113.53:443", send: []string{hello(sni("dns.example"))}, reason: "rules"},
	{what: "DNS over HTTPS under an allowed name", to: "203.0.113.53:443", send: []string{hello(sni("packages.example.com"))}, reaches: "203.0.113.20:443"},
	{what: "silence for ever", to: sharedAddress + ":443", asks: "packages.example.com", send: nil, reason: "nothing was sent"},
	{what: "a word and then silence", to: "203.0.113.40:5432", asks: "db.example", send: []string{"hello"}, reason: "nothing was sent"},
}

func TestAttacks(t *testing.T) {
	t.Parallel()
	for kind, attacks := range map[string][]attack{"tls": tlsAttacks, "http": httpAttacks, "other": otherAttacks} {
		for _, a := range attacks {
			t.Run(kind+"/"+a.what, func(t *testing.T) {
				t.Parallel()
				a.try(t)
			})
		}
	}
}

func (a attack) try(t *testing.T) {
	rules := attackRules
	if a.entry != "" {
		rules.Allow = append(slices.Clone(rules.Allow), a.entry)
	}
	w := newWorld(t, rules)
	w.mu.Lock()
	for name, records := range attackZone {
		w.zone[name] = records
	}
	w.mu.Unlock()
	if a.asks != "" {
		w.ask(boxA, a.asks, 1)
	}
	c := w.connect(boxA, a.to)
	if a.wait {
		time.Sleep(2 * serverFirst)
	}
	for i, part := range a.send {
		if i > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := io.WriteString(c, part); err != nil {
			break // it is refused before it has said everything
		}
	}
	if a.reaches != "" || a.never != "" && a.reason == "" {
		_ = c.CloseWrite()
	}
	answer, _ := io.ReadAll(c)
	if a.reason != "" {
		line := w.line("box-a", func(c api.Connection) bool { return c.Protocol == "tcp" && deniedFor(a.reason)(c) })
		if line.Address == "" || line.Port == 0 {
			t.Errorf("the line is %+v", line)
		}
		if strings.Contains(string(answer), "done") {
			t.Error("it was served")
		}
	}
	if a.reaches != "" {
		line := w.line("box-a", isAllowed)
		if w.reached(a.reaches) == "" || w.reached(a.reaches) != w.everything() {
			t.Errorf("%s received %q; the world %q", a.reaches, w.reached(a.reaches), w.everything())
		}
		if !strings.HasPrefix(a.reaches, line.Address) || line.Sent == 0 || line.Received != 4 {
			t.Errorf("the line is %+v", line)
		}
	}
	if a.never != "" && strings.Contains(w.everything(), a.never) {
		t.Errorf("a server received %q", w.everything())
	}
	if got := w.reached(evilAddress+":443") + w.reached(evilAddress+":80"); got != "" {
		t.Errorf("the address of somebody else received %q", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.dialled {
		if !w.s.reach(to.Addr()) {
			t.Errorf("%s was dialled", to)
		}
	}
	for _, q := range w.asked {
		if strings.Contains(q, "evil") {
			t.Errorf("%q was asked outside", q)
		}
	}
}
