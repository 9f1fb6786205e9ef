package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// classifyWhole says of all bytes at once what a sniffer says of a few at a time.
func classifyWhole(b []byte) protocol {
	line := bytes.TrimLeft(b, "\r\n \t")
	switch {
	case len(line) == 0 && len(b) <= maxBlank:
		return undecided
	case len(b)-len(line) > maxBlank:
		return speaksHTTP
	case b[0] == recordHandshake:
		return speaksTLS
	}
	line, _, whole := bytes.Cut(line, []byte("\n"))
	method := line
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		method = line[:end]
	}
	for _, c := range bytes.TrimRight(method, "\r") {
		if !tokenByte(c) {
			return speaksElse
		}
	}
	switch {
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")), len(method) < len(line) && wellKnown(method), len(line) >= maxHead:
		return speaksHTTP
	case whole:
		return speaksElse
	}
	return undecided
}

var firstBytes = []string{
	"", "\r\n\r\nGET / HTTP/1.1\r\n", strings.Repeat("\r\n", 33), strings.Repeat(" ", maxBlank) + "GET /\n", "GET /\r\n", "GET\t/\r\n", "GET\r /\r\n",
	"get /", "FOO / HTTP/1.1\r\n", "FOO /\r\nHTTP/1.1\r\n", "FOO / HTTHTTP/1", "FOO / hTtP/", "HTTP/1.1 200 OK\r\n", "PRI * HTTP/2.0", "SSH-2.0-x\r\n", "FOO\rBAR \n",
	"FOO\r\r\n", "\x16\x03\x01", " \x16", "\x00", "FOO \x00\xff HTTP/", "OPTIONSX /", "connect\t", "\r\r\r", hello(sni("packages.example.com")),
}

// FuzzFirstBytes gives the first bytes of a connection a few at a time: what is
// said of them is what is said of all, at the first byte where something can be.
func FuzzFirstBytes(f *testing.F) {
	for i, s := range firstBytes {
		f.Add([]byte(s), i%3+1)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if len(b) > 4096 {
			return
		}
		size = max(1, size&0xff)
		var s sniffer
		var r records
		for end := min(size, len(b)); ; end = min(end+size, len(b)) {
			first, whole := s.classify(b[:end]), classifyWhole(b[:end])
			if first != whole {
				t.Fatalf("%q is %d, and at once %d", b[:end], first, whole)
			}
			if first != undecided || end == len(b) {
				break
			}
		}
		for end := min(size, len(b)); ; end = min(end+size, len(b)) {
			complete := r.complete(b[:end])
			if _, err := parseHello(b[:end]); complete == errors.Is(err, errMore) {
				t.Fatalf("%q is complete: %v, and at once: %v", b[:end], complete, err)
			}
			if complete || end == len(b) {
				return
			}
		}
	})
}

// TestEachByteOnce takes away what was looked at: nobody looks at it again.
func TestEachByteOnce(t *testing.T) {
	t.Parallel()
	gone := func(b string, n int) []byte { return []byte(strings.Repeat("\x00", n) + b[n:]) }
	first := "FOO /" + strings.Repeat("x", maxHead/2) + " HTTP/"
	var s sniffer
	for i := range first {
		if p := s.classify(gone(first[:i+1], i)); (p != undecided) != (i == len(first)-1) || p != undecided && p != speaksHTTP {
			t.Fatalf("after %d bytes: %d", i+1, p)
		}
	}
	h := fragmented(hello(sni("packages.example.com"), extension(51, strings.Repeat("k", 3000))), 7)
	var r records
	for i := range h {
		if done := r.complete(gone(h[:i+1], i)); done != (i == len(h)-1) {
			t.Fatalf("after %d of %d bytes: %v", i+1, len(h), done)
		}
	}
}

// TestByteByByte reads long beginnings that come one byte at a time. They are put
// together once, and what is kept for them is bounded: else there would be as many
// allocations as bytes.
func TestByteByByte(t *testing.T) {
	const bound = 100
	long := strings.Repeat("x", 15<<10)
	h := hello(sni("packages.example.com"), extension(51, long))
	r := "FOO /" + long + " HTTP/1.1\r\nHost: packages.example.com\r\nX: 1\r\n\r\n"
	check := func(what string, b string, read func(*inlet) error) {
		t.Helper()
		if n := testing.AllocsPerRun(3, func() {
			in := &inlet{conn: &pieces{b: []byte(b), size: 1}}
			if err := read(in); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if cap(in.buf) > maxHelloBytes {
				t.Errorf("%s: room for %d bytes", what, cap(in.buf))
			}
		}); n > bound {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	tls := func(in *inlet) error {
		if p, err := in.protocol(); err != nil || p != speaksTLS {
			return fmt.Errorf("protocol %d, %w", p, err)
		}
		if name, err := in.hello(); err != nil || name != "packages.example.com" {
			return fmt.Errorf("name %q, %w", name, err)
		}
		return nil
	}
	check("a hello", h, tls)
	check("a hello in many records", fragmented(h, 8), tls)
	check("a request", r, func(in *inlet) error {
		if p, err := in.protocol(); err != nil || p != speaksHTTP {
			return fmt.Errorf("protocol %d, %w", p, err)
		}
		if r, err := in.request(true); err != nil || r.host != "packages.example.com" || in.buf != nil {
			return fmt.Errorf("host %q, %d held, %w", r.host, cap(in.buf), err)
		}
		return nil
	})
	check("a line that does not end", "FOO /"+long+long, func(in *inlet) error {
		if p, err := in.protocol(); err != nil || p != speaksHTTP || len(in.buf) > maxHead+maxBlank || cap(in.buf) > maxHead+maxBlank {
			return fmt.Errorf("protocol %d after %d bytes, with room for %d, %w", p, len(in.buf), cap(in.buf), err)
		}
		if _, err := in.request(true); !errors.Is(err, errHeadLong) {
			return fmt.Errorf("it is taken for a request: %w", err)
		}
		return nil
	})
}

// TestUndecided fills a sandbox's share of connections that nothing is decided
// about. One that is made is not of them, nor one that was refused.
func TestUndecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	g := w.s.guest(boxA, "box-a")
	undecided := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.undecided
	}
	for _, send := range []string{hello(sni("packages.example.com")), get + "Host: packages.example.com\r\n\r\n"} {
		w.open(boxA, "203.0.113.20:443", send)
	}
	_, _ = io.ReadAll(w.send(boxA, "203.0.113.20:443", hello(sni("evil.com"))))
	w.line("box-a", deniedFor("rules"))
	w.eventually("what is decided is not counted", func() bool { return undecided() == 0 })
	for i := range maxUndecided {
		if !g.take(&g.undecided, &w.s.undecided) {
			t.Fatalf("%d are too many", i)
		}
	}
	if _, err := w.connect(boxA, "203.0.113.20:443").Read(make([]byte, 1)); err == nil {
		t.Error("it was served")
	}
	w.line("box-a", deniedFor("not made yet"))
	w.open(boxB, "203.0.113.20:443", hello(sni("packages.example.com")))
	for range maxUndecided {
		g.release(&g.undecided, &w.s.undecided)
	}
	w.open(boxA, "203.0.113.20:443", hello(sni("packages.example.com")))
}

// TestTooManyOfAll fills the places of all sandboxes.
func TestTooManyOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"203.0.113.0/24"}})
	w.s.flows.mu.Lock()
	w.s.flows.taken = maxAllFlows
	w.s.flows.mu.Unlock()
	if _, err := w.connect(boxA, "203.0.113.5:80").Read(make([]byte, 1)); err == nil {
		t.Error("it was served")
	}
	w.line("box-a", deniedFor("too many"))
	for range maxAllFlows {
		w.s.flows.release()
	}
	w.open(boxA, "203.0.113.5:80", "x")
}

// TestPlaces has sandboxes take all that they can get: one that comes later still
// gets something, and so do some more.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, greedy := range []int{1, 64, 112, 500, 4000} {
		p := places{each: maxQueries, all: maxAllQueries}
		held := make([]int, greedy)
		for again := true; again; {
			again = false
			for i := range held {
				if p.take(held[i]) {
					held[i]++
					again = true
				}
			}
		}
		if greedy <= 64 && held[greedy-1] != maxQueries {
			t.Errorf("of %d sandboxes the last has %d places", greedy, held[greedy-1])
		}
		for range fairShare {
			if !p.take(0) {
				t.Errorf("%d sandboxes leave nothing", greedy)
			}
		}
		if p.taken > p.all {
			t.Errorf("%d are taken", p.taken)
		}
	}
	p := places{each: 3, all: 2}
	for i := range 3 {
		if got := p.take(0); got != (i < 2) {
			t.Errorf("place %d of 2: %v", i+1, got)
		}
	}
	if p.release(); !p.take(0) {
		t.Error("a place that is given back is not there")
	}
}

// TestLaterHeadSlow leaves the head of a second request half said. A client that has
// not begun one may wait for as long as it likes.
func TestLaterHeadSlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	first := get + "Host: packages.example.com\r\n\r\n"
	idle := w.open(boxB, "203.0.113.20:80", first)
	slow := w.open(boxA, "203.0.113.20:80", first)
	chunked := w.open(boxB, "203.0.113.20:80", strings.Replace(first, "\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n", 1))
	fmt.Fprint(slow, "G")
	fmt.Fprint(chunked, "0\r\nX: ")
	for _, c := range []net.Conn{slow, chunked} {
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it was waited for")
		}
	}
	w.line("box-a", deniedFor("too slowly"))
	fmt.Fprint(idle, strings.Replace(first, "\r\n", "\r\nX-Second: 1\r\n", 1))
	w.eventually("the second request arrives", func() bool { return strings.Contains(w.reached("203.0.113.20:80"), "X-Second") })
}

// TestSlowSwitch is about a server that leaves its answer to a WebSocket half said:
// what there is of it is passed on.
func TestSlowSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	w.serveAt("203.0.113.20:80", func(c net.Conn) {
		for _, b := range "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 1" {
			fmt.Fprintf(c, "%c", b)
		}
		_, _ = io.Copy(io.Discard, c)
	})
	c := w.send(boxA, "203.0.113.20:80", get+"Host: packages.example.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	want := "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 1"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSilentResolver is about a query that nobody answers: it has an end.
func TestSilentResolver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{})
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	at := netip.MustParseAddrPort(silent.LocalAddr().String())
	w.setUpstream(at, at, at)
	began := time.Now()
	if m := w.ask(boxA, "packages.example.com", 1); m.Rcode != 2 {
		t.Errorf("%v", m)
	}
	if took := time.Since(began); took > queryTimeout+patience/2 {
		t.Errorf("it took %s", took)
	}
	g := w.s.guest(boxA, "box-a")
	w.eventually("the place is given back", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		w.s.queries.mu.Lock()
		defer w.s.queries.mu.Unlock()
		return g.queries == 0 && w.s.queries.taken == 0
	})
}

// send makes a connection of a sandbox and sends something.
func (w *world) send(from netip.Addr, to, text string) *net.TCPConn {
	w.t.Helper()
	c := w.connect(from, to)
	fmt.Fprint(c, text)
	return c
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s", what)
		}
	}
}
