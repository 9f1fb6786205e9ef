package hostnet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// A sandbox whose end comes after the server's own is removed all the same, and
// the last one takes the gate and the rules along.
func TestReleaseAfterClose(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		before := inventory(t)
		m := newManager(t, Config{})
		a, b := take(t, m), take(t, m)
		apply(t, m, b, Rules{Offline: true, Groups: []string{"g"}})
		must(t, m.Close(t.Context()))
		must(t, m.Release(t.Context(), a))
		if _, err := netlink.LinkByName(a.HostInterface); err == nil {
			t.Error("a slot that was released after Close is still there")
		}
		if _, err := netlink.LinkByName(b.HostInterface); err != nil || !sharedInPlace() {
			t.Error("a slot in use, or its rules, went with another")
		}
		must(t, m.Release(t.Context(), b))
		must(t, m.Release(t.Context(), b)) // repeated
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// However Take, Release, the end of Run, and Close fall together: what was
// released is gone, and what Take gave can be.
func TestEverythingEndsAtOnce(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		before := inventory(t)
		for range 8 {
			m := newManager(t, Config{Ahead: 2})
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- m.Run(ctx) }()
			var held []Slot
			for range 4 {
				held = append(held, take(t, m))
			}
			var wg sync.WaitGroup
			for _, s := range held {
				wg.Go(func() {
					if err := m.Apply(t.Context(), s, Rules{Offline: true}); err != nil && api.CodeOf(err) != api.CodeNetworkUnavailable {
						t.Error(err)
					}
					if err := m.Release(t.Context(), s); err != nil {
						t.Error(err)
					}
				})
			}
			for range 3 {
				wg.Go(func() {
					s, err := m.Take(t.Context())
					if err != nil {
						if api.CodeOf(err) != api.CodeNetworkUnavailable {
							t.Error(err)
						}
						return
					}
					if err := m.Release(t.Context(), s); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				stop()
				if err := <-ran; err != nil {
					t.Error(err)
				}
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if after := inventory(t); after != before {
				t.Fatalf("left behind; before:\n%s\nafter:\n%s", before, after)
			}
		}
	})
}

// A server that was killed leaves its gate; the next one takes it over, whole or
// not, and takes it along.
func TestGateOfAKilledServer(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		before := inventory(t)
		kill := func(m *Manager) { must(t, m.kernel.user.Close()) }
		first := newManager(t, Config{})
		gate := first.Gate()
		index := first.gate
		kill(first)
		second := newManager(t, Config{})
		if second.Gate() != gate {
			t.Errorf("the gate went from %v to %v", gate, second.Gate())
		}
		if _, err := second.Adopt(t.Context(), index); err == nil {
			t.Error("the gate was adopted as a slot")
		}
		must(t, second.Sweep(t.Context(), nil))
		if second.Gate() != gate || !inForceWhole(second) {
			t.Error("the gate was swept")
		}
		kill(second)

		damage := map[string]func(){
			"no namespace": func() { must(t, unname(second.cfg.namespace(index))) },
			"link down": func() {
				l, err := netlink.LinkByName(linkName(index))
				must(t, err)
				must(t, netlink.LinkSetDown(l))
			},
			"no link": func() {
				l, err := netlink.LinkByName(linkName(index))
				must(t, err)
				must(t, netlink.LinkDel(l))
			},
			"two gates": func() {
				_, err := second.kernel.createAs((index+1)%second.cfg.slots(), kindGate, maxMTU)
				must(t, err)
			},
		}
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range damage {
				if !yield(name) {
					return
				}
			}
		}) {
			damage[name]()
			m := newManager(t, Config{})
			if m.Gate() != gate {
				t.Errorf("%s: the gate is %v, was %v", name, m.Gate(), gate)
			}
			s := take(t, m)
			g := guest(t, s)
			c, err := net.ListenPacket("udp4", gate.Address.String()+":53")
			must(t, err)
			go func() { // until it is closed
				buf := make([]byte, 16)
				for {
					n, from, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					_, _ = c.WriteTo(buf[:n], from)
				}
			}()
			answers(t, g, c.LocalAddr().String())
			c.Close()
			must(t, m.Release(t.Context(), s))
			must(t, m.Sweep(t.Context(), nil))
			kill(m)
		}
		m := newManager(t, Config{})
		must(t, m.Close(t.Context()))
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// With no index left for a gate, Setup fails and leaves nothing.
func TestNoIndexForAGate(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		small := netip.MustParsePrefix("10.9.8.0/29")
		a := newManager(t, Config{Owner: "owneraaa", Prefix: small})
		s := take(t, a)
		before := inventory(t)
		b := New(Config{Owner: "ownerbbb", Prefix: small}, slog.New(slog.DiscardHandler))
		if err := b.Setup(t.Context()); api.CodeOf(err) != api.CodeCapacity {
			t.Errorf("Setup without an index: %v", err)
		}
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
		must(t, a.Release(t.Context(), s))
		must(t, a.Close(t.Context()))
	})
}

// Slots of a program version that knew no groups of links are taken over.
func TestSlotOfAnEarlierVersion(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		l, err := netlink.LinkByName(x.s.HostInterface)
		must(t, err)
		must(t, netlink.LinkSetGroup(l, 0))
		unreachable(t, x.g, webPublic+":80")
		must(t, x.m.kernel.user.Close())
		m := newManager(t, Config{})
		s, err := m.Adopt(t.Context(), x.s.Index)
		must(t, err)
		must(t, m.Apply(t.Context(), s, DefaultRules()))
		reaches(t, x.g, webPublic+":80")
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

// Nothing of what others have in the kernel's tables is changed.
func TestOtherTablesAreUntouched(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		publish(t, 8080, webPublic, 80)
		nft, err := nftables.New()
		must(t, err)
		tab := nft.AddTable(&nftables.Table{Name: "firewall", Family: nftables.TableFamilyINet})
		policy := nftables.ChainPolicyAccept
		ch := nft.AddChain(&nftables.Chain{Name: "input", Table: tab, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, Policy: &policy})
		nft.AddRule(&nftables.Rule{Table: tab, Chain: ch, Exprs: append(port(unix.IPPROTO_TCP, 22), &expr.Verdict{Kind: expr.VerdictAccept})})
		must(t, nft.AddSet(&nftables.Set{Table: tab, Name: "denied", KeyType: nftables.TypeIPAddr}, []nftables.SetElement{{Key: []byte{1, 2, 3, 4}}}))
		must(t, nft.Flush())
		before := others(t)
		m := newManager(t, Config{Pass: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
		s := take(t, m)
		for _, r := range []Rules{{Allow: ranges("1.2.3.4/32"), Groups: []string{"g"}}, {ByName: true, Mbps: 10}, {Offline: true}, DefaultRules()} {
			apply(t, m, s, r)
			if now := others(t); now != before {
				t.Fatalf("under %+v the others' rules changed; before:\n%s\nnow:\n%s", r, before, now)
			}
		}
		must(t, removeRules())
		if _, err := m.kernel.ensureRules(t.Context()); err != nil {
			t.Error(err)
		}
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
		if after := others(t); after != before {
			t.Errorf("the others' rules changed; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// others describes all tables but ours.
func others(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	nft, err := nftables.New()
	must(t, err)
	chains, err := nft.ListChains()
	must(t, err)
	for _, c := range chains {
		if c.Table.Name == tableName {
			continue
		}
		text, err := json.Marshal(c)
		must(t, err)
		fmt.Fprintf(&b, "chain %s\n", text)
		rules, err := nft.GetRules(c.Table, c)
		must(t, err)
		for _, r := range rules {
			text, err := json.Marshal(r.Exprs)
			must(t, err)
			fmt.Fprintf(&b, "rule %d %s\n", r.Handle, text)
		}
	}
	tables, err := nft.ListTables()
	must(t, err)
	for _, tab := range tables {
		if tab.Name == tableName {
			continue
		}
		sets, err := nft.GetSets(tab)
		must(t, err)
		for _, s := range sets {
			s.Table = tab
			elements, err := nft.GetSetElements(s)
			must(t, err)
			fmt.Fprintln(&b, "set", tab.Name, s.Name, len(elements))
		}
	}
	return b.String()
}

// Connections of an earlier guest of a slot are unknown when the next has it.
func TestNextGuestInheritsNothing(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		listen(t, w.ns, webPublic+":80")
		m := newManager(t, Config{Prefix: netip.MustParsePrefix("10.200.0.0/28")})
		a, b, c := take(t, m), take(t, m), take(t, m) // and the gate
		kept := guest(t, b)
		talk(t, kept, webPublic+":80")
		g := guest(t, a)
		talk(t, g, webPublic+":80")
		conn, err := net.DialTimeout("tcp4", listen(t, g, a.Address.Addr().String()+":80").addr, 10*time.Second)
		must(t, err)
		conn.Close()
		count := func(s Slot) int {
			list, err := connections(s.Address.Addr(), ctBySource, ctByTarget)
			must(t, err)
			return len(list)
		}
		if n := count(a); n < 2 {
			t.Fatalf("%d connections", n)
		}
		must(t, m.Release(t.Context(), a))
		if m.Free() != 1 {
			t.Errorf("%d slots are free", m.Free())
		}
		again := take(t, m)
		if again.Index != a.Index {
			t.Fatalf("slot %d, want the only one that is free, %d", again.Index, a.Index)
		}
		if n := count(again); n > 0 {
			t.Errorf("%d connections are inherited", n)
		}
		if n := count(b); n == 0 {
			t.Error("another slot's connections are gone")
		}
		for _, s := range []Slot{again, b, c} {
			must(t, m.Release(t.Context(), s))
		}
		must(t, m.Close(t.Context()))
	})
}
