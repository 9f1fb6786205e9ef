package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/netrule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// The two sandboxes of a world. On the loopback they are addresses.
var (
	boxA = netip.MustParseAddr("127.0.2.1")
	boxB = netip.MustParseAddr("127.0.2.2")
)

// world is a resolver and a proxy with sandboxes on one side and an internet of
// documentation addresses on the other, all on the loopback.
type world struct {
	t         testing.TB
	s         *Server
	dns, tcp  string   // where the resolver and the proxy listen
	originals sync.Map // of connections, by the client's address

	all sync.WaitGroup

	mu       sync.Mutex
	peers    map[netip.Addr]Peer
	zone     map[string][]string // addresses of names; "=name" is an alias
	asked    []string            // by the resolver, "A name."
	dialled  []netip.AddrPort
	received map[netip.AddrPort]*bytes.Buffer
	servers  map[netip.AddrPort]func(net.Conn) // other than sinks
	upstream []netip.AddrPort
	lines    map[string][]api.Connection
}

func rulesOf(t testing.TB, r api.NetworkRules) *netrule.Rules {
	t.Helper()
	out, err := netrule.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newWorld(t testing.TB, r api.NetworkRules) *world {
	t.Helper()
	w := &world{
		t: t, zone: map[string][]string{}, received: map[netip.AddrPort]*bytes.Buffer{},
		servers: map[netip.AddrPort]func(net.Conn){}, lines: map[string][]api.Connection{}, peers: map[netip.Addr]Peer{},
	}
	w.setRules(boxA, "box-a", r)
	w.setRules(boxB, "box-b", r)
	ctx, stop := context.WithCancel(t.Context())
	all := &w.all
	w.upstream = []netip.AddrPort{w.serveZone(ctx, all)}
	w.s = New(Config{
		Peer: func(a netip.Addr) (Peer, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			p, ok := w.peers[a]
			return p, ok
		},
		Upstream: func() []netip.AddrPort {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.upstream
		},
		Floor: func(a netip.Addr) bool {
			return netip.MustParsePrefix("203.0.113.0/24").Contains(a) || netip.MustParsePrefix("198.51.100.0/24").Contains(a)
		},
		Original: w.original,
		Dial:     w.dial,
		Record: func(id string, c api.Connection) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lines[id] = append(w.lines[id], c)
		},
	})
	packets, l := listen(t)
	w.dns = l.Addr().String()
	all.Go(func() { fatal(t, w.s.ServeDNS(ctx, packets, l)) })
	_, proxy := listen(t)
	w.tcp = proxy.Addr().String()
	all.Go(func() { fatal(t, w.s.ServeTCP(ctx, proxy)) })
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	return w
}

func fatal(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

// listen gives a UDP socket and a listener with the same port.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := net.ListenPacket("udp4", l.Addr().String())
		if err == nil {
			t.Cleanup(func() { p.Close(); l.Close() })
			return p, l
		}
		l.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

func (w *world) setRules(box netip.Addr, id string, r api.NetworkRules) {
	rules := rulesOf(w.t, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers[box] = Peer{ID: id, Rules: rules, Links: func(name string) (netip.Addr, bool) {
		if id == "box-a" && name == "web" {
			return netip.MustParseAddr("10.200.0.6"), true
		}
		return netip.Addr{}, false
	}}
}

// serveZone is the resolver of the host.
func (w *world) serveZone(ctx context.Context, all *sync.WaitGroup) netip.AddrPort {
	packets, l := listen(w.t)
	handler := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := w.fromZone(q)
		if _, udp := rw.RemoteAddr().(*net.UDPAddr); udp {
			m.Truncate(upstreamSize)
		}
		_ = rw.WriteMsg(m)
	})
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: l, Handler: handler}} {
		ready := make(chan struct{})
		server.NotifyStartedFunc = func() { close(ready) }
		all.Go(func() { _ = server.ActivateAndServe() })
		<-ready
		context.AfterFunc(ctx, func() { _ = server.Shutdown() })
	}
	return netip.MustParseAddrPort(l.Addr().String())
}

func (w *world) fromZone(q *dns.Msg) *dns.Msg {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	name, qtype := q.Question[0].Name, q.Question[0].Qtype
	w.asked = append(w.asked, dns.TypeToString[qtype]+" "+name)
	header := func(name string, rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: 60}
	}
	for owner := name; ; {
		records, ok := w.zone[strings.TrimSuffix(owner, ".")]
		if !ok {
			m.Rcode = dns.RcodeNameError
			return m
		}
		if alias, ok := strings.CutPrefix(records[0], "="); ok {
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(owner, dns.TypeCNAME), Target: dns.Fqdn(alias)})
			owner = dns.Fqdn(alias)
			continue
		}
		for _, r := range records {
			if text, ok := strings.CutPrefix(r, "txt:"); ok && qtype == dns.TypeTXT {
				m.Answer = append(m.Answer, &dns.TXT{Hdr: header(owner, dns.TypeTXT), Txt: []string{text}})
			} else if a, err := netip.ParseAddr(r); err == nil && qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: header(owner, dns.TypeA), A: a.AsSlice()})
			}
		}
		// What a hostile server adds.
		if name != "packages.example.com." {
			m.Answer = append(m.Answer, &dns.A{Hdr: header("packages.example.com.", dns.TypeA), A: net.IPv4(203, 0, 113, 66)})
		}
		return m
	}
}

// original says where the client wanted to go, once it has said so to the test.
func (w *world) original(c *net.TCPConn) (netip.AddrPort, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if to, ok := w.originals.Load(c.RemoteAddr().String()); ok {
			return to.(netip.AddrPort), nil
		}
	}
	return netip.AddrPort{}, errors.New("not redirected")
}

// dial connects to the world's server at an address: a sink, unless the test has
// set another.
func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	serve := w.servers[to]
	w.dialled = append(w.dialled, to)
	w.mu.Unlock()
	if serve == nil {
		serve = func(c net.Conn) { w.sink(to, c) }
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var d net.Dialer
	up, err := d.DialContext(ctx, "tcp4", l.Addr().String())
	if err != nil {
		return nil, err
	}
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	w.all.Go(func() {
		defer c.Close()
		serve(c)
	})
	return up, nil
}

// sink takes everything until the end and then says "done".
func (w *world) sink(to netip.AddrPort, c net.Conn) {
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.received[to] == nil {
			w.received[to] = new(bytes.Buffer)
		}
		return w.received[to].Write(b)
	}), c)
	_, _ = io.WriteString(c, "done")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// connect makes a connection of a sandbox.
func (w *world) connect(from netip.Addr, to string) *net.TCPConn {
	w.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	c, err := d.DialContext(w.t.Context(), "tcp4", w.tcp)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	w.originals.Store(c.LocalAddr().String(), netip.MustParseAddrPort(to))
	return c.(*net.TCPConn)
}

// query asks the resolver as a sandbox.
func (w *world) query(network string, from netip.Addr, q *dns.Msg) (*dns.Msg, error) {
	d := &net.Dialer{LocalAddr: &net.UDPAddr{IP: from.AsSlice()}}
	if network == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	c := dns.Client{Net: network, Dialer: d, Timeout: patience, UDPSize: 4096}
	m, _, err := c.ExchangeContext(w.t.Context(), q, w.dns)
	return m, err
}

func (w *world) ask(from netip.Addr, name string, qtype uint16) *dns.Msg {
	w.t.Helper()
	m, err := w.query("udp", from, new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// line waits for a line of a sandbox's log.
func (w *world) line(id string, like func(api.Connection) bool) api.Connection {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		for _, c := range w.lines[id] {
			if like(c) {
				w.mu.Unlock()
				return c
			}
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Fatalf("no such line in the log of %s: %+v", id, w.lines[id])
	return api.Connection{}
}

func deniedFor(reason string) func(api.Connection) bool {
	return func(c api.Connection) bool {
		return c.Verdict == api.VerdictDenied && strings.Contains(c.Reason, reason)
	}
}

func isAllowed(c api.Connection) bool { return c.Verdict == api.VerdictAllowed }

// reached is what a server has received.
func (w *world) reached(to string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.received[netip.MustParseAddrPort(to)]; b != nil {
		return b.String()
	}
	return ""
}

// everything is what all servers have received.
func (w *world) everything() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all strings.Builder
	for _, b := range w.received {
		all.Write(b.Bytes())
	}
	return all.String()
}
