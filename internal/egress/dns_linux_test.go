package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/pandastack/pandastack/api"
)

func question(name string, qtype uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
}

func (w *world) questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// resolverCases are what a sandbox under attackRules may ask.
var resolverCases = []struct {
	name    string
	qtype   uint16
	rcode   int
	answer  string // what the answer ends with
	outside bool
}{
	{"packages.example.com", dns.TypeA, dns.RcodeSuccess, "203.0.113.20", true},
	{"PacKages.Example.COM", dns.TypeA, dns.RcodeSuccess, "203.0.113.20", true},
	{"a.b.good.example", dns.TypeA, dns.RcodeSuccess, "203.0.113.30", true},
	{"nothing.good.example", dns.TypeA, dns.RcodeNameError, "", true},
	{"packages.example.com", dns.TypeAAAA, dns.RcodeSuccess, "", false},
	{"packages.example.com", dns.TypeHTTPS, dns.RcodeSuccess, "", false},
	{"packages.example.com", dns.TypeSVCB, dns.RcodeSuccess, "", false},
	{"www.good.example", dns.TypeTXT, dns.RcodeSuccess, `"hello"`, true},
	{"secret.evil.com", dns.TypeA, dns.RcodeNameError, "", false},
	{"secret.evil.com", dns.TypeAAAA, dns.RcodeNameError, "", false},
	{"secret.evil.com", dns.TypeTXT, dns.RcodeNameError, "", false},
	{"secret.evil.com", dns.TypeMX, dns.RcodeNameError, "", false},
	{"secret.evil.com", dns.TypeHTTPS, dns.RcodeNameError, "", false},
	{"evil-packages.example.com", dns.TypeA, dns.RcodeNameError, "", false},
	{"www.packages.example.com", dns.TypeA, dns.RcodeNameError, "", false},
	{"good.example", dns.TypeA, dns.RcodeNameError, "", false},
	{"bad.good.example", dns.TypeA, dns.RcodeNameError, "", false},
	{"66.113.0.203.in-addr.arpa", dns.TypePTR, dns.RcodeNameError, "", false},
	{"203.0.113.20", dns.TypeA, dns.RcodeNameError, "", false},
	{`a\000.good.example`, dns.TypeA, dns.RcodeNameError, "", false},
	{`a\.b.good.example`, dns.TypeA, dns.RcodeNameError, "", false},
	{`*.good.example`, dns.TypeA, dns.RcodeNameError, "", false},
	{".", dns.TypeNS, dns.RcodeNameError, "", false},
	{"packages.example.com", dns.TypeANY, dns.RcodeRefused, "", false},
	{"packages.example.com", dns.TypeAXFR, dns.RcodeRefused, "", false},
	{"packages.example.com", dns.TypeIXFR, dns.RcodeRefused, "", false},
	{"packages.example.com", dns.TypeNULL, dns.RcodeRefused, "", false},
	{"packages.example.com", 65280, dns.RcodeRefused, "", false},
	{"web.internal", dns.TypeA, dns.RcodeSuccess, "10.200.0.6", false},
	{"WEB.internal", dns.TypeA, dns.RcodeSuccess, "10.200.0.6", false},
	{"web.internal", dns.TypeAAAA, dns.RcodeSuccess, "", false},
	{"web.internal", dns.TypeTXT, dns.RcodeSuccess, "", false},
	{"other.internal", dns.TypeA, dns.RcodeNameError, "", false},
	{"a.web.internal", dns.TypeA, dns.RcodeNameError, "", false},
	{"internal", dns.TypeA, dns.RcodeNameError, "", false},
	{"rebind.example", dns.TypeA, dns.RcodeSuccess, "", true},
	{"mixed.good.example", dns.TypeA, dns.RcodeSuccess, "203.0.113.31", true},
	{"private.good.example", dns.TypeA, dns.RcodeSuccess, "", true},
}

// TestResolver goes through what a sandbox under rules by name may ask.
func TestResolver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attackRules)
	for name, records := range attackZone {
		w.name(name, records...)
	}
	w.name("www.good.example", "203.0.113.30", "txt:hello")
	for _, c := range resolverCases {
		for _, network := range []string{"udp", "tcp"} {
			before := len(w.questions())
			m, err := w.query(network, boxA, question(c.name, c.qtype))
			if err != nil {
				t.Errorf("%s %s over %s: %v", c.name, dns.TypeToString[c.qtype], network, err)
				continue
			}
			last := ""
			if n := len(m.Answer); n > 0 {
				last = m.Answer[n-1].String()
			}
			if m.Rcode != c.rcode || (c.answer == "") != (last == "") || !strings.HasSuffix(last, c.answer) {
				t.Errorf("%s %s over %s: %v", c.name, dns.TypeToString[c.qtype], network, m)
			}
			if outside := len(w.questions()) > before; outside != c.outside {
				t.Errorf("%s %s over %s: asked outside: %v", c.name, dns.TypeToString[c.qtype], network, outside)
			}
			for _, rr := range m.Answer {
				if strings.Contains(rr.String(), "203.0.113.66") {
					t.Errorf("%s: a record that nobody asked for: %v", c.name, rr)
				}
			}
		}
	}
	w.line("box-a", func(c api.Connection) bool {
		return c.Protocol == "dns" && c.Name == "secret.evil.com" && deniedFor("rules")(c)
	})
	w.line("box-a", func(c api.Connection) bool {
		return c.Protocol == "dns" && c.Name == "rebind.example" && c.Address == "169.254.169.254" && deniedFor("no sandbox may reach")(c)
	})
	if m := w.ask(boxB, "web.internal", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("a sandbox that is not linked: %v", m)
	}
}

// TestResolverByDefault is about sandboxes without rules, and with addresses only.
func TestResolverByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{})
	w.setRules(boxB, "box-b", api.NetworkRules{Allow: []string{"203.0.113.0/24"}})
	w.name("any.example", "203.0.113.7", "txt:hello")
	for _, c := range []struct {
		box   netip.Addr
		qtype uint16
		found bool
	}{{boxA, dns.TypeA, true}, {boxA, dns.TypeTXT, true}, {boxB, dns.TypeA, true}, {boxB, dns.TypeTXT, false}} {
		if m := w.ask(c.box, "any.example", c.qtype); (len(m.Answer) > 0) != c.found {
			t.Errorf("%s: %v", c.box, m)
		}
	}
	w.setRules(boxA, "box-a", api.NetworkRules{Internet: new(bool)})
	before := len(w.questions())
	if m := w.ask(boxA, "any.example", dns.TypeA); m.Rcode != dns.RcodeNameError || len(w.questions()) != before {
		t.Errorf("offline: %v", m)
	}
}

// TestResolverMalformed sends what is no query.
func TestResolverMalformed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{})
	g := w.s.guest(boxA, "box-a")
	peer, _ := w.s.peer(boxA)
	pack := func(change func(*dns.Msg)) []byte {
		m := question("packages.example.com", dns.TypeA)
		change(m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, c := range map[string]struct {
		wire  []byte
		rcode int // -1 for no answer
	}{
		"nothing":         {nil, -1},
		"half a header":   {make([]byte, 11), -1},
		"a header":        {make([]byte, 12), dns.RcodeFormatError},
		"an answer":       {pack(func(m *dns.Msg) { m.Response = true }), -1},
		"half an answer":  {pack(func(m *dns.Msg) { m.Response = true })[:20], -1},
		"half a question": {pack(func(*dns.Msg) {})[:20], dns.RcodeFormatError},
		"two questions":   {pack(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		"an update":       {pack(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		"a notification":  {pack(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		"another class":   {pack(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		"a loop of names": {append(pack(func(*dns.Msg) {})[:12], 0xc0, 0x0c, 0, 1, 0, 1), dns.RcodeFormatError},
	} {
		out := w.s.answer(t.Context(), peer, g, c.wire, true)
		m := new(dns.Msg)
		if c.rcode < 0 {
			if out != nil {
				t.Errorf("%s: it is answered", what)
			}
		} else if err := m.Unpack(out); err != nil || m.Rcode != c.rcode || !m.Response || len(c.wire) > 1 && m.Id != uint16(c.wire[0])<<8|uint16(c.wire[1]) {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
}

// TestResolverSize is about answers that do not fit.
func TestResolverSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{})
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("203.0.113.%d", i+1))
	}
	w.name("many.example", many...)
	q := question("many.example", dns.TypeA)
	m, err := w.query("udp", boxA, q)
	if err != nil {
		t.Fatal(err)
	}
	m.Compress = true
	if !m.Truncated || m.Len() > dns.MinMsgSize || len(m.Answer) == 0 {
		t.Errorf("without EDNS: %d answers, truncated %v, %v", len(m.Answer), m.Truncated, err)
	}
	for _, network := range []string{"udp", "tcp"} {
		q := question("many.example", dns.TypeA)
		q.SetEdns0(4096, true)
		m, err := w.query(network, boxA, q)
		if err != nil || m.Truncated || len(m.Answer) != maxAddresses || m.IsEdns0() == nil {
			t.Errorf("%s with EDNS: %d answers, %v", network, len(m.Answer), err)
		}
	}
	w.setRules(boxA, "box-a", api.NetworkRules{Allow: []string{"a.com"}})
	q = question("b.com", dns.TypeA)
	q.SetEdns0(1232, false)
	if m, err := w.query("udp", boxA, q); err != nil || !strings.Contains(m.String(), "Prohibited") {
		t.Errorf("a refusal says: %v, %v", m, err)
	}
}

// TestUpstreams is about resolvers of the host that fail.
func TestUpstreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{})
	w.name("packages.example.com", "203.0.113.20")
	good := w.s.cfg.Upstream()[0]
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	liar := w.serveLies(t)
	failing := w.serveFailures(t)
	for _, first := range []netip.AddrPort{netip.MustParseAddrPort(silent.LocalAddr().String()), liar, failing, netip.MustParseAddrPort("127.0.0.1:1")} {
		w.setUpstream(first, good)
		if m := w.ask(boxA, "packages.example.com", dns.TypeA); len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "203.0.113.20") {
			t.Errorf("behind %s: %v", first, m)
		}
	}
	for _, none := range [][]netip.AddrPort{nil, {failing}} {
		w.setUpstream(none...)
		if m := w.ask(boxA, "packages.example.com", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
			t.Errorf("with %v: %v", none, m)
		}
	}
}

func (w *world) setUpstream(servers ...netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upstream = servers
}

// serveLies answers every question with answers to others.
func (w *world) serveLies(t *testing.T) netip.AddrPort {
	return w.serveRaw(t, func(q *dns.Msg) []*dns.Msg {
		lie := func(change func(*dns.Msg)) *dns.Msg {
			m := new(dns.Msg).SetReply(q)
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(203, 0, 113, 66)}}
			change(m)
			return m
		}
		return []*dns.Msg{
			lie(func(m *dns.Msg) { m.Id++ }),
			lie(func(m *dns.Msg) { m.Response = false }),
			lie(func(m *dns.Msg) { m.Question[0].Name = "evil.com." }),
			lie(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }),
			lie(func(m *dns.Msg) { m.Question = nil }),
		}
	})
}

func (w *world) serveFailures(t *testing.T) netip.AddrPort {
	return w.serveRaw(t, func(q *dns.Msg) []*dns.Msg {
		return []*dns.Msg{new(dns.Msg).SetRcode(q, dns.RcodeRefused)}
	})
}

func (w *world) serveRaw(t *testing.T, answers func(*dns.Msg) []*dns.Msg) netip.AddrPort {
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	w.all.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if q.Unpack(buf[:n]) != nil {
				continue
			}
			for _, m := range answers(q) {
				if b, err := m.Pack(); err == nil {
					_, _ = p.WriteTo(b, from)
				}
			}
		}
	})
	return netip.MustParseAddrPort(p.LocalAddr().String())
}

// TestQueriesInFlight fills a sandbox's share of the resolver.
func TestQueriesInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{})
	w.name("packages.example.com", "203.0.113.20")
	g := w.s.guest(boxA, "box-a")
	for i := range maxQueries {
		if !g.take(&g.queries, &w.s.queries) {
			t.Fatalf("%d are too many", i)
		}
	}
	if g.take(&g.queries, &w.s.queries) {
		t.Fatal("there is no bound")
	}
	if m := w.ask(boxB, "packages.example.com", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("the other sandbox: %v", m)
	}
	for range maxQueries {
		g.release(&g.queries, &w.s.queries)
	}
	var all sync.WaitGroup
	for range maxQueries / 2 {
		all.Go(func() {
			if m, err := w.query("udp", boxA, question("packages.example.com", dns.TypeA)); err != nil || len(m.Answer) != 1 {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	all.Wait()
}

func TestPins(t *testing.T) {
	t.Parallel()
	var p pins
	a := netip.MustParseAddr("203.0.113.1")
	p.add("a.com", []netip.Addr{a}, 0)
	if !p.has("a.com", a) || p.has("b.com", a) || p.has("a.com", a.Next()) || p.name(a) != "a.com" {
		t.Error("a pin is not where it was put")
	}
	p.add("old.com", []netip.Addr{a}, -time.Hour)
	if p.has("old.com", a) || len(p.names(a)) != 1 {
		t.Error("a pin that has run out holds")
	}
	p.add("a.com", []netip.Addr{a}, -time.Hour)
	if !p.has("a.com", a) {
		t.Error("a shorter answer took back a longer one")
	}
	for i := range 3 * maxPins {
		p.add(fmt.Sprintf("n%d.com", i), []netip.Addr{a, a.Next()}, time.Duration(i%2)*48*time.Hour)
		if p.count > maxPins {
			t.Fatalf("%d pins", p.count)
		}
	}
	count := 0
	for _, names := range p.byAddress {
		for _, until := range names {
			if count++; time.Until(until) > maxTTL+pinGrace {
				t.Fatal("a pin holds for longer than it may")
			}
		}
	}
	if count != p.count {
		t.Errorf("%d pins are counted as %d", count, p.count)
	}
	if p.forget(); p.has("a.com", a) || p.count != 0 {
		t.Error("a pin was not forgotten")
	}
}
