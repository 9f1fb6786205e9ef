package hostnet

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// four is a prefix of four slots: a gate and three sandboxes.
var four = netip.MustParsePrefix("10.200.0.0/28")

// inTable lists what the table has of slot i.
func inTable(t *testing.T, cfg Config, i int) []string {
	t.Helper()
	conn, err := nftables.New()
	must(t, err)
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	must(t, err)
	var out []string
	for _, c := range chains {
		if c.Name == fmt.Sprint("rules-", i) || c.Name == fmt.Sprint("links-", i) {
			out = append(out, "chain "+c.Name)
		}
	}
	addr := cfg.slot(i).Address.Addr().As4()
	for _, s := range []nftables.Set{rulesMap, linksMap, memberSet} {
		s.Table = ourTable()
		elements, err := conn.GetSetElements(&s)
		must(t, err)
		for _, e := range elements {
			if s.Name == memberSet.Name && bytes.HasSuffix(e.Key, addr[:]) || bytes.Equal(e.Key, linkName16(linkName(i))) {
				out = append(out, "element of "+s.Name)
			}
		}
	}
	return out
}

func gone(t *testing.T, cfg Config, what string, i int) {
	t.Helper()
	if left := inTable(t, cfg, i); len(left) > 0 {
		t.Errorf("%s is left in the table: %v", what, left)
	}
}

// takeIndex takes slots until it gets a certain one, and releases the others.
func takeIndex(t *testing.T, m *Manager, index int) Slot {
	t.Helper()
	var others []Slot
	defer func() {
		for _, s := range others {
			must(t, m.Release(t.Context(), s))
		}
	}()
	for {
		s := take(t, m)
		if s.Index == index {
			return s
		}
		others = append(others, s)
	}
}

// What an earlier process had applied to a slot ends with the slot, though this
// process does not know what it was: the next guest there meets no strangers.
func TestSweptSlotLeavesItsGroups(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		first := newManager(t, Config{Prefix: four})
		kept, swept := take(t, first), take(t, first)
		linked := Rules{Default: true, Groups: []string{"g"}}
		apply(t, first, kept, linked)
		apply(t, first, swept, Rules{Allow: ranges(webPublic + "/32"), Groups: []string{"g"}})
		gk := guest(t, kept)
		atKept := listen(t, gk, kept.Address.Addr().String()+":80").addr
		reaches(t, guest(t, swept), atKept)
		must(t, first.kernel.user.Close()) // as when the process is killed

		m := newManager(t, Config{Prefix: four})
		_, err := m.Adopt(t.Context(), kept.Index)
		must(t, err)
		must(t, m.Sweep(t.Context(), nil))
		gone(t, m.cfg, "a slot that was swept", swept.Index)
		if len(inTable(t, m.cfg, kept.Index)) == 0 {
			t.Error("the rules of a slot that was adopted are gone")
		}
		apply(t, m, kept, linked)
		next := takeIndex(t, m, swept.Index)
		gn := guest(t, next)
		refused(t, gn, atKept)
		refused(t, gk, listen(t, gn, next.Address.Addr().String()+":80").addr)
		must(t, m.Release(t.Context(), next))
		must(t, m.Release(t.Context(), kept))
		gone(t, m.cfg, "a slot that was released", kept.Index)
		must(t, m.Close(t.Context()))
	})
}

// What the table has of slots that are not there any more goes, whole or half.
func TestTableOfLostSlotsIsSwept(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		first := newManager(t, Config{Prefix: four})
		lost, named, kept := take(t, first), take(t, first), take(t, first)
		for _, s := range []Slot{lost, named, kept} {
			apply(t, first, s, Rules{Allow: ranges(webPublic + "/32"), Groups: []string{"g", "h"}})
		}
		must(t, first.kernel.user.Close())
		for _, s := range []Slot{lost, named} {
			l, err := netlink.LinkByName(s.HostInterface)
			must(t, err)
			must(t, netlink.LinkDel(l))
		}
		must(t, unname(lost.Namespace))
		must(t, transact(func(r *ruleset) { // half of a slot that is out of range
			chain := r.chain("links-99")
			r.put(r.named(linksMap), leadsTo(linkName16(linkName(99)), chain.Name))
		}))

		m := newManager(t, Config{Prefix: four})
		must(t, m.Sweep(t.Context(), []int{kept.Index}))
		gone(t, m.cfg, "a slot without a link or a namespace", lost.Index)
		gone(t, m.cfg, "a slot without a link", named.Index)
		gone(t, m.cfg, "a slot of a larger prefix", 99)
		if len(inTable(t, m.cfg, kept.Index)) == 0 {
			t.Error("the rules of a slot that is there are gone")
		}
		s, err := m.Adopt(t.Context(), kept.Index)
		must(t, err)
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

// An index that another server has taken meanwhile keeps what that one applied.
func TestRetakenSlotKeepsItsRules(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		a, b := newManager(t, Config{}), newManager(t, Config{Owner: "ownerbbb"})
		s := take(t, a)
		apply(t, a, s, Rules{Allow: ranges(webPublic + "/32")})
		l, err := netlink.LinkByName(s.HostInterface)
		must(t, err)
		must(t, netlink.LinkDel(l))
		_, err = b.kernel.create(s.Index)
		must(t, err)
		must(t, b.kernel.apply(t.Context(), s.Index, Rules{Allow: ranges(shopPublic + "/32")}, true))
		before := inTable(t, b.cfg, s.Index)
		must(t, a.Release(t.Context(), s))
		if after := inTable(t, b.cfg, s.Index); len(before) == 0 || !slices.Equal(before, after) {
			t.Errorf("the rules of another server's slot were %v and are %v", before, after)
		}
		must(t, b.kernel.remove(s.Index))
		gone(t, b.cfg, "a slot that was removed", s.Index)
		must(t, a.Close(t.Context()))
		must(t, b.Close(t.Context()))
	})
}

// Rules that come while a slot is removed are refused, so that none outlive it.
func TestNoRulesForASlotThatEnds(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := take(t, m)
		apply(t, m, s, Rules{Offline: true, Groups: []string{"g"}})
		must(t, m.kernel.forgetSlot(s.Index)) // as the first step of a removal
		if err := m.Apply(t.Context(), s, Rules{Groups: []string{"g"}}); api.CodeOf(err) != api.CodeNetworkUnavailable {
			t.Errorf("rules for a slot that is being removed: %v", err)
		}
		gone(t, m.cfg, "a slot that is being removed", s.Index)
		must(t, m.kernel.user.Close()) // killed between the steps
		next := newManager(t, Config{})
		must(t, next.Sweep(t.Context(), nil))
		if _, err := netlink.LinkByName(s.HostInterface); err == nil {
			t.Error("a slot that was half removed is still there")
		}
		must(t, next.Close(t.Context()))
	})
}

// watchConnections keeps the kernel's table of connections in use while ours is
// away, as the rules of other programs do.
func watchConnections(t *testing.T) {
	t.Helper()
	nft, err := nftables.New()
	must(t, err)
	tab := nft.AddTable(&nftables.Table{Name: "firewall", Family: nftables.TableFamilyIPv4})
	for name, hook := range map[string]*nftables.ChainHook{"pre": nftables.ChainHookPrerouting, "out": nftables.ChainHookOutput} {
		chain := nft.AddChain(&nftables.Chain{Name: name, Table: tab, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityFilter})
		nft.AddRule(&nftables.Rule{Table: tab, Chain: chain, Exprs: append(conn(ctKnown), accept()...)})
	}
	must(t, nft.Flush())
}

// A connection that was made while the rules were away is cut when they are
// back, if they would not have let it.
func TestConnectionsOfAGapAreCut(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		b := take(t, x.m)
		gb := guest(t, b)
		apply(t, x.m, b, Rules{Allow: ranges(webPublic + "/32")})
		atB := listen(t, gb, b.Address.Addr().String()+":80").addr
		onHost := listen(t, nil, "0.0.0.0:8080")
		watchConnections(t)
		for _, whole := range []bool{true, false} {
			kept := []talker{talk(t, x.g, webPublic+":80"), talk(t, gb, webPublic+":81"), hostTalk(t, atB)}
			nft, err := nftables.New()
			must(t, err)
			if whole {
				nft.DelTable(ourTable())
			} else {
				nft.FlushTable(ourTable())
			}
			must(t, nft.Flush())
			var cut []talker
			for g, at := range map[*netns][]string{
				x.g: {hostWAN + ":8080", x.s.Gateway.String() + ":8080", x.m.Gate().Address.String() + ":8080", "10.99.0.1:80", atB},
				gb:  {hostWAN + ":8080", "10.99.0.1:80", shopPublic + ":80"},
			} {
				for _, a := range at {
					c := talk(t, g, a)
					c.alive(t)
					cut = append(cut, c)
				}
			}
			inGap := hostTalk(t, atB)
			restored, err := x.m.kernel.ensureRules(t.Context())
			if must(t, err); !restored {
				t.Fatal("the server did not notice")
			}
			for _, c := range cut {
				c.dead(t)
			}
			for _, c := range append(kept, inGap) {
				c.alive(t)
			}
		}
		if onHost.seen.Load() == 0 {
			t.Error("nobody got to the host while the rules were away")
		}
		must(t, x.m.Release(t.Context(), b))
		x.end(t)
	})
}

func TestJudge(t *testing.T) {
	cfg, err := Config{Owner: "testowna", Pass: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}}.withDefaults()
	must(t, err)
	addr := netip.MustParseAddr
	slot, gate := cfg.slot(7), cfg.slot(9).Gateway
	self, mate, stranger := slot.Address.Addr(), cfg.slot(1).Address.Addr(), cfg.slot(2).Address.Addr()
	host := addr("8.8.4.4")
	kindOf := func(a netip.Addr) int {
		if a == host || a == slot.Gateway || a == gate {
			return unix.RTN_LOCAL
		}
		return unix.RTN_UNICAST
	}
	public := addr(webPublic)
	for _, c := range []struct {
		name     string
		rules    Rules
		from, to netip.Addr
		port     uint16
		via      netip.Addr
		want     bool
	}{
		{"the internet", DefaultRules(), self, public, 80, public, true},
		{"a denied range", DefaultRules(), self, addr("10.1.1.1"), 80, addr("10.1.1.1"), false},
		{"metadata", DefaultRules(), self, addr("169.254.169.254"), 80, addr("169.254.169.254"), false},
		{"an opened range", DefaultRules(), self, addr("172.16.5.5"), 80, addr("172.16.5.5"), true},
		{"an opened range that is not allowed", Rules{}, self, addr("172.16.5.5"), 80, addr("172.16.5.5"), false},
		{"a resolver", DefaultRules(), self, addr(resolver), 53, addr(resolver), true},
		{"a resolver's other port", DefaultRules(), self, addr(resolver), 80, addr(resolver), false},
		{"the host", DefaultRules(), self, host, 80, host, false},
		{"a published port of the host", DefaultRules(), self, host, 80, public, false},
		{"its gateway", DefaultRules(), self, slot.Gateway, 22, slot.Gateway, false},
		{"DNS of the gate", Rules{Offline: true}, self, gate, 53, gate, true},
		{"the gate's proxy, dialled", Rules{ByName: true}, self, gate, gateProxyPort, gate, false},
		{"the gate's proxy, led there", Rules{ByName: true}, self, public, 80, gate, true},
		{"past the proxy", Rules{ByName: true, Default: true}, self, public, 80, public, false},
		{"offline", Rules{Offline: true, Default: true}, self, public, 80, public, false},
		{"a mate", Rules{Offline: true}, self, mate, 80, mate, true},
		{"a stranger", DefaultRules(), self, stranger, 80, stranger, false},
		{"from a mate", Rules{Offline: true}, mate, self, 80, self, true},
		{"from a stranger", DefaultRules(), stranger, self, 80, self, false},
		{"from the host", Rules{Offline: true}, host, self, 80, self, true},
		{"from its gateway", Rules{Offline: true}, slot.Gateway, self, 80, self, true},
		{"from outside", DefaultRules(), public, self, 80, self, false},
	} {
		j := judge{cfg, slot, gate, c.rules, map[netip.Addr]bool{mate: true}, []netip.Addr{addr(resolver)}, kindOf}
		if got := j.permits(tracked{source: c.from, target: c.to, via: c.via, port: c.port}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A guest that keeps quiet is not let on by what the host sends, whether the
// kernel kept its table of connections while the rules were away or not.
func TestHostDoesNotRenewAConnectionOfAGap(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		for round, network := range []string{"tcp4", "tcp"} {
			l, err := net.Listen(network, ":0")
			must(t, err)
			defer l.Close()
			port := l.Addr().(*net.TCPAddr).Port
			must(t, removeRules())
			c, err := x.g.dial("tcp4", fmt.Sprint(hostWAN, ":", port))
			must(t, err)
			defer c.Close()
			inside, err := l.Accept()
			must(t, err)
			defer inside.Close()
			dialled := hostTalk(t, listen(t, x.g, x.s.Address.Addr().String()+[]string{":80", ":81"}[round]).addr)
			_, err = x.m.kernel.ensureRules(t.Context())
			must(t, err)
			_, _ = inside.Write([]byte("renewed"))
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			if n, err := c.Read(make([]byte, 16)); err == nil {
				t.Errorf("%s: %d bytes of the host came through", network, n)
			}
			dialled.alive(t)
			dialled.Close()
			watchConnections(t)
		}
		x.end(t)
	})
}

// hostTalk is a connection that the host opens.
func hostTalk(t *testing.T, address string) talker {
	t.Helper()
	c, err := net.DialTimeout("tcp4", address, 10*time.Second)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	for line := make([]byte, 1); line[0] != '\n'; {
		_, err := c.Read(line)
		must(t, err)
	}
	return talker{c, address}
}

// A process that was killed before it forgot the connections of a slot leaves
// them to the next.
func TestConnectionsOfLostSlotsAreForgotten(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		listen(t, w.ns, webPublic+":80")
		other := newManager(t, Config{Owner: "ownerbbb"})
		first := newManager(t, Config{})
		lost, there := take(t, first), take(t, first)
		gl, gt := guest(t, lost), guest(t, there)
		talk(t, gl, webPublic+":80")
		kept := talk(t, gt, webPublic+":80")
		must(t, first.Release(t.Context(), lost))
		count := func(s Slot) int {
			list, err := connections(s.Address.Addr(), ctBySource, ctByTarget)
			must(t, err)
			return len(list)
		}
		if count(lost) == 0 {
			t.Fatal("the connections were forgotten before")
		}
		must(t, first.kernel.user.Close())
		m := newManager(t, Config{})
		if n := count(lost); n > 0 {
			t.Errorf("%d connections of a slot that is gone are still known", n)
		}
		kept.alive(t)

		// An index that another server takes before they are forgotten.
		s, err := m.Adopt(t.Context(), there.Index)
		must(t, err)
		must(t, m.Release(t.Context(), s))
		retaken, err := other.kernel.create(there.Index)
		must(t, err)
		gr := guest(t, retaken)
		theirs := talk(t, gr, webPublic+":80")
		if count(retaken) < 2 {
			t.Fatalf("%d connections of two guests", count(retaken))
		}
		m.recycle()
		if n := count(retaken); n != 1 {
			t.Errorf("%d connections are known, want only the new guest's", n)
		}
		theirs.alive(t)
		must(t, other.kernel.remove(retaken.Index))
		must(t, other.Close(t.Context()))
		must(t, m.Close(t.Context()))
	})
}

// The cap that the interface of the platform allows is one the kernel keeps.
func TestGreatestCap(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		for _, mbps := range []int{100_000, 40_000, 32_000} {
			apply(t, x.m, x.s, Rules{Default: true, Mbps: mbps})
			qdiscs, err := x.g.route.QdiscList(linkOf(t, x.g))
			must(t, err)
			if !slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool {
				b, ok := q.(*netlink.Tbf)
				return ok && b.Rate == uint64(mbps)*1_000_000/8
			}) {
				t.Errorf("the cap of %d Mbit/s is %v", mbps, qdiscs)
			}
			sendMuch(t, x.g, webPublic+":80")
		}
		x.end(t)
	})
}
