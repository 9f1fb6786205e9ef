package hostnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// Another public address of the world, beside webPublic.
const shopPublic = "198.51.100.20"

func ranges(texts ...string) []Range {
	var out []Range
	for _, text := range texts {
		prefix, ports, _ := strings.Cut(text, " ")
		r := Range{Prefix: netip.MustParsePrefix(prefix)}
		if ports != "" {
			if _, err := fmt.Sscanf(ports, "%d-%d", &r.First, &r.Last); err != nil {
				panic(err)
			}
		}
		out = append(out, r)
	}
	return out
}

func apply(t *testing.T, m *Manager, s Slot, r Rules) {
	t.Helper()
	must(t, m.Apply(t.Context(), s, r))
}

// refused checks that the first packet of a connection is answered with a
// refusal, and at once: a program inside fails and does not hang.
func refused(t *testing.T, n *netns, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		began := time.Now()
		c, err := n.dial("tcp4", a)
		if err == nil {
			c.Close()
			t.Errorf("TCP to %s works and must not", a)
			continue
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("TCP to %s: %v after %v, want a refusal", a, err, time.Since(began))
		}
	}
}

// answers checks that UDP to the address gets an answer.
func answers(t *testing.T, n *netns, address string) {
	t.Helper()
	if err := ask(n, address); err != nil {
		t.Errorf("UDP to %s: %v", address, err)
	}
}

func ask(n *netns, address string) error {
	c, err := n.dial("udp4", address)
	if err != nil {
		return err
	}
	defer c.Close()
	var got int
	for range 3 { // a datagram may be lost
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = c.Write([]byte("hello")); err != nil {
			return err
		}
		if got, err = c.Read(make([]byte, 16)); err == nil && got > 0 {
			return nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EACCES) {
			return err
		}
	}
	return err
}

func silent(t *testing.T, n *netns, address string) {
	t.Helper()
	if err := ask(n, address); err == nil {
		t.Errorf("UDP to %s is answered and must not be", address)
	}
}

// site is a world with two public addresses and a sandbox.
type site struct {
	m *Manager
	s Slot
	g *netns
	w *world
}

func newSite(t *testing.T, cfg Config) site {
	t.Helper()
	w := newWorld(t)
	w.ns.addAddr(t, "lo", shopPublic+"/32")
	for _, a := range append([]string{webPublic, shopPublic}, insides...) { // not any address: the answer would come from another
		for _, port := range []string{"80", "81", "443"} {
			listen(t, w.ns, a+":"+port)
		}
	}
	m := newManager(t, cfg)
	s := take(t, m)
	apply(t, m, s, DefaultRules()) // before the guest runs
	return site{m, s, guest(t, s), w}
}

func (x site) end(t *testing.T) {
	t.Helper()
	must(t, x.m.Release(t.Context(), x.s))
	must(t, x.m.Close(t.Context()))
}

func TestRanges(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		for _, c := range []struct {
			name      string
			rules     Rules
			open, not []string
			udp, mute []string
		}{
			{"default", DefaultRules(), []string{webPublic + ":80", shopPublic + ":443"}, []string{"10.99.0.1:80"}, []string{webPublic + ":80"}, nil},
			{"nothing", Rules{}, nil, []string{webPublic + ":80", shopPublic + ":443", "10.99.0.1:80"}, nil, []string{webPublic + ":80"}},
			{"offline", Rules{Offline: true, Default: true, Allow: ranges("0.0.0.0/0")}, nil, []string{webPublic + ":80"}, nil, []string{webPublic + ":80"}},
			{"an address", Rules{Allow: ranges(webPublic + "/32")}, []string{webPublic + ":80", webPublic + ":443"}, []string{shopPublic + ":80"}, []string{webPublic + ":80"}, []string{shopPublic + ":80"}},
			{"a port", Rules{Allow: ranges("198.51.100.0/24 80-80")}, []string{webPublic + ":80", shopPublic + ":80"}, []string{webPublic + ":81", shopPublic + ":443"}, []string{webPublic + ":80"}, []string{webPublic + ":81"}},
			{"ports", Rules{Allow: ranges("198.51.100.0/24 80-81")}, []string{webPublic + ":80", webPublic + ":81"}, []string{webPublic + ":443"}, nil, nil},
			{"the floor holds", Rules{Allow: ranges("0.0.0.0/0"), Default: true}, []string{webPublic + ":80"}, []string{"10.99.0.1:80", "169.254.169.254:80", hostWAN + ":80"}, nil, nil},
			{"the floor holds in lists", Rules{Allow: ranges("10.0.0.0/8", webPublic+"/32")}, []string{webPublic + ":80"}, []string{"10.99.0.1:80"}, nil, nil},
			{"denied", Rules{Default: true, Deny: ranges("198.51.100.0/28")}, []string{shopPublic + ":80"}, []string{webPublic + ":80"}, []string{shopPublic + ":80"}, []string{webPublic + ":80"}},
			{"denied port", Rules{Default: true, Deny: ranges("0.0.0.0/0 80-80")}, []string{shopPublic + ":443"}, []string{webPublic + ":80"}, nil, nil},
			{"given back", Rules{Default: true, Deny: ranges("198.51.100.0/24"), Allow: ranges(webPublic + "/32 80-80")}, []string{webPublic + ":80"}, []string{webPublic + ":443", shopPublic + ":80"}, nil, nil},
			{"taken back", Rules{Allow: ranges("198.51.100.0/24"), Deny: ranges(webPublic + "/32 80-80")}, []string{webPublic + ":443", shopPublic + ":80"}, []string{webPublic + ":80"}, nil, nil},
			{"overlapping", Rules{Allow: ranges("198.51.100.0/25", "198.51.100.10/32", "198.51.100.0/24", "198.51.100.128/25", "255.0.0.0/8")}, []string{webPublic + ":443", shopPublic + ":80"}, nil, nil, nil},
			{"everywhere", Rules{Allow: ranges("0.0.0.0/1", "128.0.0.0/1")}, []string{webPublic + ":443"}, []string{"10.99.0.1:80"}, nil, nil},
			{"default again", DefaultRules(), []string{webPublic + ":80", shopPublic + ":443"}, []string{"10.99.0.1:80"}, nil, nil},
		} {
			apply(t, x.m, x.s, c.rules)
			t.Log(c.name)
			for _, a := range c.open {
				reaches(t, x.g, a)
			}
			refused(t, x.g, c.not...)
			for _, a := range c.udp {
				answers(t, x.g, a)
			}
			for _, a := range c.mute {
				silent(t, x.g, a)
			}
			if t.Failed() {
				t.Fatalf("with %s", c.name)
			}
		}
		x.end(t)
	})
}

// A list of many entries is in force as a whole.
func TestManyRanges(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		var list []Range
		for i := range 3000 { // no two adjacent
			a := netip.AddrFrom4([4]byte{203, byte(i >> 8), byte(i), 1})
			list = append(list, Range{Prefix: netip.PrefixFrom(a, 32)})
		}
		list = append(list, ranges(webPublic+"/32")...)
		for i := range 500 {
			list = append(list, Range{Prefix: netip.PrefixFrom(netip.MustParseAddr(shopPublic), 32), First: uint16(1000 + i), Last: uint16(2000 + i)})
		}
		apply(t, x.m, x.s, Rules{Allow: list})
		reaches(t, x.g, webPublic+":80")
		refused(t, x.g, shopPublic+":80")
		apply(t, x.m, x.s, Rules{Default: true, Deny: list})
		refused(t, x.g, webPublic+":80")
		reaches(t, x.g, shopPublic+":80")
		x.end(t)
	})
}

func TestBadRules(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := take(t, m)
		for _, r := range []Rules{
			{Mbps: -1}, {Mbps: maxMbps + 1}, {Allow: []Range{{}}}, {Deny: ranges("fd00::/8")},
			{Allow: ranges("1.2.3.0/24 9-8")}, {Deny: make([]Range, maxRanges+1)},
		} {
			if err := m.Apply(t.Context(), s, r); api.CodeOf(err) != api.CodeInvalidRequest {
				t.Errorf("%v", err)
			}
		}
		must(t, m.Release(t.Context(), s))
		if err := m.Apply(t.Context(), s, Rules{}); api.CodeOf(err) != api.CodeNetworkUnavailable {
			t.Errorf("rules for a slot that was released: %v", err)
		}
		must(t, m.Close(t.Context()))
		if err := m.Apply(t.Context(), s, Rules{}); api.CodeOf(err) != api.CodeNetworkUnavailable {
			t.Errorf("rules after Close: %v", err)
		}
	})
}

// Connections that new rules deny end; the others go on.
func TestConnectionsAreCut(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		web, shop := talk(t, x.g, webPublic+":80"), talk(t, x.g, shopPublic+":80")
		c, err := net.DialTimeout("tcp4", listen(t, x.g, x.s.Address.Addr().String()+":8000").addr, 10*time.Second)
		must(t, err)
		defer c.Close()
		apply(t, x.m, x.s, Rules{Default: true, Deny: ranges(shopPublic + "/32 80-80")})
		web.alive(t)
		shop.dead(t)
		apply(t, x.m, x.s, Rules{Default: true, Deny: ranges(shopPublic + "/32 80-80")}) // the same
		web.alive(t)
		apply(t, x.m, x.s, DefaultRules())
		web.alive(t)
		apply(t, x.m, x.s, Rules{ByName: true, Default: true})
		web.dead(t)
		apply(t, x.m, x.s, DefaultRules())
		web = talk(t, x.g, webPublic+":80")
		apply(t, x.m, x.s, Rules{Offline: true})
		web.dead(t)
		host := talker{c, "the host's own"}
		_, err = io.ReadFull(c, make([]byte, len(c.LocalAddr().String())+1)) // the greeting
		must(t, err)
		host.alive(t)
		x.end(t)
	})
}

// talker is a connection to a server of listen.
type talker struct {
	net.Conn
	name string
}

func talk(t *testing.T, n *netns, address string) talker {
	t.Helper()
	c, err := n.dial("tcp4", address)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	for line := make([]byte, 1); line[0] != '\n'; {
		_, err := c.Read(line)
		must(t, err)
	}
	return talker{c, address}
}

func (c talker) exchange(patience time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func (c talker) alive(t *testing.T) {
	t.Helper()
	if err := c.exchange(20 * time.Second); err != nil {
		t.Errorf("the connection to %s was cut: %v", c.name, err)
	}
}

func (c talker) dead(t *testing.T) {
	t.Helper()
	if err := c.exchange(3 * time.Second); err == nil {
		t.Errorf("the connection to %s goes on and must not", c.name)
	}
}

func TestGate(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		other := newManager(t, Config{Owner: "ownerbbb"})
		so := take(t, other)
		foreign := guest(t, so)
		gate := x.m.Gate()
		if gate.DNSPort != 53 || gate.ProxyPort < 61000 || other.Gate().Address == gate.Address {
			t.Fatalf("gates %+v and %+v", gate, other.Gate())
		}
		dns := listen(t, nil, netip.AddrPortFrom(gate.Address, gate.DNSPort).String())
		proxy := listenProxy(t, gate)
		onHost := listen(t, nil, gate.Address.String()+":80")
		at := func(port uint16) string { return netip.AddrPortFrom(gate.Address, port).String() }
		for _, r := range []Rules{DefaultRules(), {}, {Offline: true}, {ByName: true}, {Default: true, Deny: ranges("0.0.0.0/0")}} {
			apply(t, x.m, x.s, r)
			reaches(t, x.g, dns.addr)
			answers(t, x.g, dns.addr)
			refused(t, x.g, at(gate.ProxyPort), onHost.addr, x.s.Gateway.String()+":53", hostWAN+":53", other.Gate().Address.String()+":53")
			silent(t, x.g, onHost.addr)
		}
		refused(t, foreign, dns.addr, at(gate.ProxyPort))    // another server's sandboxes
		unreachable(t, x.w.ns, dns.addr, at(gate.ProxyPort)) // machines that route through the host
		apply(t, x.m, x.s, Rules{ByName: true})
		if got := readLine(t, x.g, webPublic+":443"); got != webPublic+":443" {
			t.Errorf("the proxy was told %q", got)
		}
		silent(t, x.g, webPublic+":80")
		refused(t, x.g, "10.99.0.1:80", "169.254.169.254:80", so.Address.Addr().String()+":80", hostWAN+":80")
		if n := proxy.Load(); n != 1 {
			t.Errorf("the proxy saw %d connections", n)
		}
		apply(t, x.m, x.s, DefaultRules())
		reaches(t, x.g, webPublic+":443")
		if n := proxy.Load(); n != 1 {
			t.Errorf("the proxy saw %d connections after the rules by name ended", n)
		}
		must(t, other.Release(t.Context(), so))
		must(t, other.Close(t.Context()))
		x.end(t)
	})
}

// readLine reads what the server at the other end of a dial says.
func readLine(t *testing.T, n *netns, address string) string {
	t.Helper()
	c, err := n.dial("tcp4", address)
	if err != nil {
		t.Errorf("cannot reach %s: %v", address, err)
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	text, _ := io.ReadAll(c)
	return strings.TrimSpace(string(text))
}

func TestPassOpensARange(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{Pass: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("10.99.0.1/32")}})
		b := newManager(t, Config{Owner: "ownerbbb"})
		sb := take(t, b)
		gb := guest(t, sb)
		for address, want := range map[string]bool{
			"172.16.5.5": true, "10.99.0.1": true, resolver: false, "192.168.7.7": false, "169.254.169.254": false, webPublic: true,
			hostWAN: false, "127.0.0.1": false, "255.255.255.255": false, "192.0.2.255": false, x.s.Gateway.String(): false,
			x.s.Address.Addr().String(): false, x.m.Gate().Address.String(): false, "::1": false, "2001:db8::1": false, "::ffff:10.1.1.1": false,
		} {
			if got := x.m.Allowed(netip.MustParseAddr(address)); got != want {
				t.Errorf("%s is allowed: %v", address, got)
			}
		}
		reaches(t, x.g, "172.16.5.5:80")
		reaches(t, x.g, "10.99.0.1:80")
		refused(t, x.g, resolver+":80")
		refused(t, gb, "172.16.5.5:80", "10.99.0.1:80") // another server's operator did not
		apply(t, x.m, x.s, Rules{Allow: ranges("10.99.0.0/24")})
		reaches(t, x.g, "10.99.0.1:80")
		refused(t, x.g, "172.16.5.5:80", resolver+":80")
		must(t, b.Release(t.Context(), sb))
		must(t, b.Close(t.Context()))
		x.end(t)
	})
}

func TestGroups(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		m := newManager(t, Config{})
		other := newManager(t, Config{Owner: "ownerbbb"})
		var slots []Slot
		var guests []*netns
		var at []string
		for range 3 {
			s := take(t, m)
			g := guest(t, s)
			slots, guests = append(slots, s), append(guests, g)
			at = append(at, listen(t, g, s.Address.Addr().String()+":80").addr)
		}
		so := take(t, other)
		foreign := guest(t, so)
		join := func(i int, r Rules, groups ...string) {
			r.Groups = groups
			apply(t, m, slots[i], r)
		}
		join(0, DefaultRules(), "blue")
		refused(t, guests[0], at[1], at[2]) // alone in it
		join(1, Rules{Offline: true}, "red", "blue")
		join(2, Rules{ByName: true}, "red")
		must(t, other.Apply(t.Context(), so, Rules{Default: true, Groups: []string{"red", "blue"}}))
		for _, pair := range [][2]int{{0, 1}, {1, 0}, {1, 2}, {2, 1}} {
			reaches(t, guests[pair[0]], at[pair[1]])
			answers(t, guests[pair[0]], at[pair[1]])
		}
		refused(t, guests[0], at[2])
		refused(t, guests[2], at[0])
		refused(t, foreign, at...) // a name is its server's own
		open := talk(t, guests[1], at[0])
		back := talk(t, guests[0], at[1])
		kept := talk(t, guests[2], at[1])
		join(0, DefaultRules())
		open.dead(t)
		back.dead(t)
		kept.alive(t)
		refused(t, guests[0], at[1])
		refused(t, guests[1], at[0])
		reaches(t, guests[1], at[2])
		for _, s := range slots {
			must(t, m.Release(t.Context(), s))
		}
		must(t, other.Release(t.Context(), so))
		must(t, m.Close(t.Context()))
		must(t, other.Close(t.Context()))
	})
}

// Rules outlive the process that applied them, and are applied anew by the next.
func TestRulesSurviveARestart(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		b := take(t, x.m)
		gb := guest(t, b)
		atB := listen(t, gb, b.Address.Addr().String()+":80").addr
		rules := Rules{Allow: ranges(webPublic + "/32"), Groups: []string{"g"}}
		apply(t, x.m, x.s, rules)
		apply(t, x.m, b, Rules{Offline: true, Mbps: 50, Groups: []string{"g"}})
		gate := x.m.Gate()
		must(t, x.m.kernel.user.Close()) // as when the process is killed
		for round := range 2 {
			m := newManager(t, Config{})
			if m.Gate() != gate {
				t.Fatalf("the gate went from %v to %v", gate, m.Gate())
			}
			for _, s := range []Slot{x.s, b} {
				_, err := m.Adopt(t.Context(), s.Index)
				must(t, err)
			}
			must(t, m.Sweep(t.Context(), nil))
			reaches(t, x.g, webPublic+":80")
			refused(t, x.g, shopPublic+":80")
			refused(t, gb, webPublic+":80")
			link := talk(t, x.g, atB)
			if round == 0 {
				apply(t, m, x.s, rules)
				link.alive(t)
				apply(t, m, b, Rules{Offline: true, Groups: []string{"g"}})
				link.alive(t)
				must(t, m.Close(t.Context())) // slots stay, and so does the gate
				continue
			}
			apply(t, m, b, Rules{Offline: true}) // what the earlier process knew of groups is gone
			link.dead(t)
			refused(t, x.g, atB)
			apply(t, m, x.s, DefaultRules())
			reaches(t, x.g, shopPublic+":80")
			for _, s := range []Slot{x.s, b} {
				must(t, m.Release(t.Context(), s))
			}
			must(t, m.Close(t.Context()))
		}
		if left, err := x.m.kernel.slotLinks(); err == nil && len(left) > 0 {
			t.Errorf("%d links are left", len(left))
		}
	})
}

// After a firewall manager has removed all tables, nothing opens: neither before
// the rules are back nor when another server puts back its own.
func TestRulesComeBackWhole(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		b := take(t, x.m)
		gb := guest(t, b)
		atB := listen(t, gb, b.Address.Addr().String()+":80").addr
		other := newManager(t, Config{Owner: "ownerbbb"})
		so := take(t, other)
		foreign := guest(t, so)
		apply(t, x.m, x.s, Rules{Allow: ranges(webPublic + "/32"), Groups: []string{"g"}})
		apply(t, x.m, b, Rules{Offline: true, Groups: []string{"g"}})
		for _, cause := range []string{"all tables", "all rules"} {
			nft, err := nftables.New()
			must(t, err)
			if cause == "all tables" {
				nft.FlushRuleset()
			} else {
				nft.FlushTable(ourTable())
			}
			must(t, nft.Flush())
			restored, err := other.kernel.ensureRules(t.Context())
			if must(t, err); !restored {
				t.Fatal("the other server did not notice")
			}
			reaches(t, foreign, webPublic+":80")
			unreachable(t, x.g, webPublic+":80", shopPublic+":80")
			unreachable(t, gb, webPublic+":80")
			restored, err = x.m.kernel.ensureRules(t.Context())
			if must(t, err); !restored {
				t.Fatal("the server did not notice")
			}
			reaches(t, foreign, webPublic+":80")
			reaches(t, x.g, webPublic+":80")
			reaches(t, x.g, atB)
			refused(t, x.g, shopPublic+":80")
			refused(t, gb, webPublic+":80")
			for _, m := range []*Manager{x.m, other} {
				if restored, err := m.kernel.ensureRules(t.Context()); err != nil || restored {
					t.Errorf("nothing was missing: %v %v", restored, err)
				}
			}
		}
		// Apply finds the table gone.
		must(t, removeRules())
		apply(t, x.m, b, Rules{Allow: ranges(shopPublic + "/32")})
		reaches(t, gb, shopPublic+":80")
		refused(t, gb, webPublic+":80")
		refused(t, x.g, shopPublic+":80")
		must(t, x.m.Release(t.Context(), b))
		must(t, other.Release(t.Context(), so))
		must(t, other.Close(t.Context()))
		x.end(t)
	})
}

func TestManySlotsAtOnce(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		managers := []*Manager{x.m, newManager(t, Config{Owner: "ownerbbb"})}
		var wg sync.WaitGroup
		for _, m := range managers {
			for i := range 8 {
				wg.Go(func() {
					s, err := m.Take(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					for round := range 2 {
						for _, r := range []Rules{{Allow: ranges(webPublic + "/32"), Groups: []string{fmt.Sprint(i % 3)}}, {ByName: true, Mbps: 10 + round},
							{Offline: true, Groups: []string{"all"}}, DefaultRules(), {Default: true, Deny: ranges("1.0.0.0/8 1-5", shopPublic+"/32")}} {
							if err := m.Apply(t.Context(), s, r); err != nil {
								t.Error(err)
							}
						}
					}
					if i%2 == 0 {
						g := guest(t, s)
						reaches(t, g, webPublic+":80")
						refused(t, g, shopPublic+":80")
					}
					if err := m.Release(t.Context(), s); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		conn, err := nftables.New()
		must(t, err)
		chains, err := conn.ListChains()
		must(t, err)
		for _, c := range chains {
			if strings.HasPrefix(c.Name, "rules-") || strings.HasPrefix(c.Name, "links-") {
				t.Errorf("chain %s is left", c.Name)
			}
		}
		members, err := conn.GetSetElements(&nftables.Set{Table: ourTable(), Name: memberSet.Name})
		if must(t, err); len(members) > 0 {
			t.Errorf("%d members of groups are left", len(members))
		}
		must(t, managers[1].Close(t.Context()))
		x.end(t)
	})
}

func TestCap(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		took := func() time.Duration {
			began := time.Now()
			sendMuch(t, x.g, webPublic+":80")
			return time.Since(began)
		}
		free := took()
		apply(t, x.m, x.s, Rules{Default: true, Mbps: 40})
		capped := took() // 16 MiB take 3.4 s
		if capped < 2500*time.Millisecond {
			t.Errorf("16 MiB at 40 Mbit/s took %v; without a cap %v", capped, free)
		}
		apply(t, x.m, x.s, DefaultRules())
		qdiscs, err := x.g.route.QdiscList(linkOf(t, x.g))
		must(t, err)
		if slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "tbf" }) {
			t.Error("the cap is still there")
		}
		t.Logf("16 MiB: %v, capped %v, after the cap %v", free, capped, took())
		x.end(t)
	})
}

func linkOf(t *testing.T, n *netns) netlink.Link {
	t.Helper()
	l, err := n.route.LinkByName(guestLink)
	must(t, err)
	return l
}

// The runtime of a sandbox writes to a packet socket, which must not pass the cap by.
func TestCapHoldsForPacketSockets(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := take(t, m)
		apply(t, m, s, Rules{Default: true, Mbps: 1})
		n, err := openNetns(s.Namespace)
		must(t, err)
		t.Cleanup(n.close)
		index := linkOf(t, n).Attrs().Index
		var fd int
		must(t, n.in(func() (err error) {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			return err
		}))
		defer unix.Close(fd)
		frame := append(append([]byte(hardware(hostMAC)), hardware(guestMAC)...), 0x08, 0x00)
		frame = append(frame, make([]byte, 1400)...)
		for range 1000 {
			err := unix.Sendto(fd, frame, unix.MSG_DONTWAIT, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6, Addr: [8]byte(append([]byte(hardware(hostMAC)), 0, 0))})
			if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
				t.Fatal(err)
			}
		}
		l, err := netlink.LinkByName(s.HostInterface)
		must(t, err)
		if got := l.Attrs().Statistics.RxBytes; got > 700_000 { // of 1.4 MB
			t.Errorf("%d bytes passed a cap of 1 Mbit/s at once", got)
		}
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}
