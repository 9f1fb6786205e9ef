package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/netrule"
)

const get = "GET / HTTP/1.1\r\n"

// hello makes a TLS hello, in one record, of extensions.
func hello(extensions ...string) string {
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + len16(strings.Join(extensions, ""))
	msg := "\x01\x00" + len16(body)
	return record(msg)
}

func record(msg string) string { return "\x16\x03\x01" + len16(msg) }

func extension(kind uint16, data string) string {
	return string([]byte{byte(kind >> 8), byte(kind)}) + len16(data)
}

func len16(s string) string { return string([]byte{byte(len(s) >> 8), byte(len(s))}) + s }

func sni(name string) string { return extension(extServerName, len16("\x00"+len16(name))) }

// fragmented puts the message of a hello into records of n bytes each.
func fragmented(h string, n int) string {
	var out strings.Builder
	for msg := h[5:]; len(msg) > 0; {
		k := min(n, len(msg))
		out.WriteString(record(msg[:k]))
		msg = msg[k:]
	}
	return out.String()
}

func FuzzHello(f *testing.F) {
	for _, s := range []string{
		hello(sni("packages.example.com")), hello(), hello(sni("packages.example.com"), sni("evil.com")), fragmented(hello(sni("packages.example.com")), 1),
		hello(extension(extECH, "x")), hello(sni("packages.example.com")) + hello(), "\x16", "\x16\x03\x01\x00\x00", "\x80\x2e\x01",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := parseHello(b)
		var r refusal
		switch {
		case err == nil:
			if canonical, ok := netrule.Name(name); name != "" && (!ok || canonical != name) {
				t.Fatalf("the name %q", name)
			}
		case errors.Is(err, errMore):
			if len(b) >= maxHelloBytes {
				t.Fatal("there is no bound")
			}
			return
		case !errors.As(err, &r):
			t.Fatal(err)
		}
		// What was decided of the first bytes holds for all that follow them, but for
		// a second hello.
		for _, more := range []string{"\x17", "\x14\x03\x03"} {
			again, errAgain := parseHello(append(bytes.Clone(b), more...))
			if err == nil && len(b) > 0 && (errAgain != nil || again != name) {
				t.Fatalf("%q became %q, %v", name, again, errAgain)
			}
		}
	})
}

// FuzzRequest compares our reading of a request with that of Go's own server: what
// we accept, it must read in the same way, or refuse.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"Host: packages.example.com\r\n", "Host: packages.example.com:80\r\nContent-Length: 5\r\n", "Host: a.b\r\nTransfer-Encoding: chunked\r\n",
		"Host: a\r\nUpgrade: websocket\r\n", "Host: 1.2.3.4\r\n", "Host: a\r\n b\r\n", "Host : a\r\n", "host:a\r\nHOST:b\r\n", "Content_Length: 1\r\nHost: a\r\n",
	} {
		f.Add("GET / HTTP/1.1\r\n" + s + "\r\n")
		f.Add("POST http://a.b/x?y HTTP/1.0\r\n" + s + "\r\n")
	}
	f.Add("PRI * HTTP/2.0\r\n\r\n")
	f.Add("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		if i := strings.Index(s, "\r\n\r\n"); i < 0 || strings.Count(s[:i+4], "\n") != strings.Count(s[:i+4], "\r\n") {
			return // not what inlet.request passes on
		} else {
			s = s[:i+4]
		}
		ours, err := parseHead([]byte(s), false)
		if err != nil {
			var r refusal
			if !errors.As(err, &r) {
				t.Fatal(err)
			}
			return
		}
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(ours.head)))
		if err != nil {
			return
		}
		host, literal, ok := parseHost(theirs.Host)
		if !ok || host != ours.host || literal != ours.literal {
			t.Fatalf("%q: host %q, and to others %q", s, ours.host, theirs.Host)
		}
		chunked := len(theirs.TransferEncoding) > 0
		if chunked != ours.chunked || !chunked && theirs.ContentLength != ours.length {
			t.Fatalf("%q: %d bytes, chunked %v; to others %d, %v", s, ours.length, ours.chunked, theirs.ContentLength, theirs.TransferEncoding)
		}
		if theirs.Header.Get("Upgrade") != "" {
			t.Fatalf("%q: an upgrade is passed on", s)
		}
	})
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"packages.example.com", "packages.example.com:80", "1.2.3.4", "[::1]:80", "a@b", "a:b", ":", "", "a..b", "0x7f.1", "a\x00", "a:", "xn--a", "ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, literal, ok := parseHost(s)
		if !ok {
			return
		}
		if canonical, isName := netrule.Name(name); literal.IsValid() == (name != "") || name != "" && (!isName || canonical != name) {
			t.Fatalf("%q is %q, %v", s, name, literal)
		}
	})
}

// FuzzStream gives a whole connection's bytes to the reader of requests, in pieces.
func FuzzStream(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nT: x\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n"), 7)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: b\r\n\r\n"), 1)
	f.Add([]byte("\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if len(b) > 4096 {
			return
		}
		in := inlet{conn: &pieces{b: b, size: max(1, size&0xff)}}
		if p, err := in.protocol(); err != nil || p != speaksHTTP {
			return
		}
		var passed bytes.Buffer
		var hosts []string
		for {
			r, err := in.request(len(hosts) == 0)
			if err != nil {
				break
			}
			hosts = append(hosts, r.host+"/"+strings.TrimPrefix(r.literal.String(), "invalid IP"))
			passed.Write(r.head)
			if _, err := in.body(&passed, r); err != nil {
				break
			}
		}
		// Another reader of what was passed on finds no other hosts in it.
		theirs := bufio.NewReader(&passed)
		for i := 0; ; i++ {
			r, err := http.ReadRequest(theirs)
			if err != nil {
				return
			}
			host, literal, _ := parseHost(r.Host)
			if got := host + "/" + strings.TrimPrefix(literal.String(), "invalid IP"); i >= len(hosts) || got != hosts[i] {
				t.Fatalf("request %d is of %q and we saw %q", i, r.Host, hosts)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
	})
}

// pieces is a connection that brings bytes a few at a time.
type pieces struct {
	net.Conn
	b    []byte
	size int
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.size, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

// FuzzDNS gives bytes to the resolver whose upstream gives bytes back.
func FuzzDNS(f *testing.F) {
	seed := func(m *dns.Msg) []byte {
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	q := new(dns.Msg).SetQuestion("packages.example.com.", dns.TypeA)
	reply := new(dns.Msg).SetReply(q)
	reply.Answer = []dns.RR{
		&dns.CNAME{Hdr: dns.RR_Header{Name: "packages.example.com.", Rrtype: dns.TypeCNAME, Class: 1, Ttl: 1}, Target: "packages.example.com."},
		&dns.A{Hdr: dns.RR_Header{Name: "packages.example.com.", Rrtype: dns.TypeA, Class: 1, Ttl: 1}, A: net.IPv4(203, 0, 113, 1)},
		&dns.A{Hdr: dns.RR_Header{Name: "packages.example.com.", Rrtype: dns.TypeA, Class: 1, Ttl: 1}, A: net.IPv4(127, 0, 0, 1)},
	}
	f.Add(seed(q), seed(reply))
	f.Add(seed(new(dns.Msg).SetQuestion("web.internal.", dns.TypeA)), []byte{})
	f.Add([]byte("\x00\x00\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"), []byte{0})
	rules, err := netrule.Parse(api.NetworkRules{})
	if err != nil {
		f.Fatal(err)
	}
	s := New(Config{
		Peer:     func(netip.Addr) (Peer, bool) { return Peer{ID: "a", Rules: rules}, true },
		Upstream: func() []netip.AddrPort { return nil },
		Floor:    func(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.IsPrivate() },
	})
	peer := Peer{ID: "a", Rules: rules, Links: func(string) (netip.Addr, bool) { return boxAddress, true }}
	f.Fuzz(func(t *testing.T, query, answer []byte) {
		g := s.guest(boxAddress, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, udp := range []bool{true, false} {
			if out := s.answer(ctx, peer, g, query, udp); out != nil {
				if udp && len(out) > upstreamSize {
					t.Fatalf("%d bytes over UDP", len(out))
				}
				m := new(dns.Msg)
				if err := m.Unpack(out); err != nil || !m.Response {
					t.Fatalf("%v: %v", err, m)
				}
			}
		}
		_, _ = answerTo(q, answer)
		m := new(dns.Msg)
		if m.Unpack(answer) != nil {
			return
		}
		records, found, ttl := s.keep("a", "packages.example.com", m)
		if len(found) > maxAddresses || ttl > maxTTL {
			t.Fatalf("%d addresses for %s", len(found), ttl)
		}
		for _, rr := range records {
			if a, ok := rr.(*dns.A); ok && !a.A.IsGlobalUnicast() {
				t.Fatalf("%v is given to a sandbox", rr)
			}
		}
	})
}

var boxAddress = netip.MustParseAddr("10.200.0.2")

// BenchmarkHello reads the name in a hello as it comes from a browser: long.
func BenchmarkHello(b *testing.B) {
	h := []byte(hello(sni("packages.example.com"), extension(51, strings.Repeat("k", 1500))))
	b.ReportAllocs()
	for b.Loop() {
		if name, err := parseHello(h); err != nil || name != "packages.example.com" {
			b.Fatal(name, err)
		}
	}
}

// BenchmarkRequest reads the head of a request.
func BenchmarkRequest(b *testing.B) {
	head := []byte(get + "Host: packages.example.com\r\nUser-Agent: something/1.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nCookie: " + strings.Repeat("c", 200) + "\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseHead(head, true); err != nil {
			b.Fatal(err)
		}
	}
}
