package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
)

// inForceWhole reports whether the rules of a server are all in place.
func inForceWhole(m *Manager) bool { return sharedInPlace() && m.kernel.own.inPlace() }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inventory is everything that slots could leave on a machine.
func inventory(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	links, err := netlink.LinkList()
	must(t, err)
	for _, l := range links {
		fmt.Fprintln(&b, "link", l.Attrs().Name, "forwarding", getSysctl("ipv4", l.Attrs().Name, "forwarding"))
	}
	nft, err := nftables.New()
	must(t, err)
	tables, err := nft.ListTables()
	must(t, err)
	for _, tab := range tables {
		fmt.Fprintln(&b, "table", tab.Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	must(t, err)
	fmt.Fprintln(&b, "routes", len(routes))
	must(t, filepath.WalkDir("/run", func(path string, _ os.DirEntry, err error) error {
		fmt.Fprintln(&b, "file", path)
		return err
	}))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	// Only where ours are: the others come and go with those of the machine
	// around this one.
	fmt.Fprintln(&b, "mounts", strings.Count(string(mounts), " /run"))
	return b.String()
}

func TestLastToLeaveCleansUp(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		before := inventory(t)
		a := newManager(t, Config{Owner: "owneraaa", Ahead: 2})
		b := newManager(t, Config{Owner: "ownerbbb", Ahead: 2})
		sa, sb := take(t, a), take(t, b)
		if sa.Index == sb.Index {
			t.Fatal("two servers have one slot")
		}
		if getSysctl("ipv4", "wan0", "forwarding") != "1" {
			t.Error("the uplink does not forward")
		}
		must(t, a.Release(t.Context(), sa))
		must(t, a.Close(t.Context()))
		if !inForceWhole(b) {
			t.Fatal("a server that left took the rules of another with it")
		}
		// A sandbox that outlives its server keeps its slot and the rules.
		must(t, b.Close(t.Context()))
		if !inForceWhole(b) {
			t.Fatal("the rules are gone while a sandbox is there")
		}
		b = newManager(t, Config{Owner: "ownerbbb"})
		got, err := b.Adopt(t.Context(), sb.Index)
		must(t, err)
		if got != sb {
			t.Errorf("adopted %+v, want %+v", got, sb)
		}
		must(t, b.Release(t.Context(), got))
		must(t, b.Release(t.Context(), got)) // repeated
		must(t, b.Close(t.Context()))
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// A server without slots, idle, is a user of the rules as well.
func TestIdleServerKeepsTheRules(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		before := inventory(t)
		a := newManager(t, Config{Owner: "owneraaa"})
		b := newManager(t, Config{Owner: "ownerbbb"})
		must(t, a.Close(t.Context()))
		if !inForceWhole(b) {
			t.Fatal("the rules are gone while a server is there")
		}
		must(t, b.Close(t.Context()))
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		before := inventory(t)
		ctx, stop := context.WithCancel(t.Context())
		var managers []*Manager
		var running, busy sync.WaitGroup
		for _, owner := range []string{"owneraaa", "ownerbbb", "ownerccc"} {
			// A small prefix makes them collide.
			m := newManager(t, Config{Owner: owner, Ahead: 2, Prefix: netip.MustParsePrefix("10.200.0.0/24")})
			managers = append(managers, m)
			running.Go(func() {
				if err := m.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		var mu sync.Mutex
		owners := map[int]string{}
		for _, m := range managers {
			for range 3 {
				busy.Go(func() {
					for range 4 {
						s, err := m.Take(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if other, ok := owners[s.Index]; ok {
							t.Errorf("slot %d given to %s and %s", s.Index, other, m.cfg.Owner)
						}
						owners[s.Index] = m.cfg.Owner
						mu.Unlock()
						mu.Lock()
						delete(owners, s.Index)
						mu.Unlock()
						if err := m.Release(t.Context(), s); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		busy.Wait()
		stop()
		running.Wait()
		for _, m := range managers {
			must(t, m.Close(t.Context()))
		}
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

func TestSweepAndAdopt(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		before := inventory(t)
		other := newManager(t, Config{Owner: "ownerbbb"})
		foreign := take(t, other)
		dead := newManager(t, Config{Owner: "owneraaa"})
		keep, lose, linkOnly, nameOnly := take(t, dead), take(t, dead), take(t, dead), take(t, dead)
		must(t, dead.kernel.user.Close()) // as when the process is killed
		must(t, unname(linkOnly.Namespace))
		l, err := netlink.LinkByName(nameOnly.HostInterface)
		must(t, err)
		must(t, netlink.LinkDel(l))

		m := newManager(t, Config{Owner: "owneraaa"})
		for what, index := range map[string]int{"without a namespace": linkOnly.Index, "without a link": nameOnly.Index,
			"of another server": foreign.Index, "that never was": (foreign.Index + 99) % 16384, "out of range": 1 << 20} {
			if _, err := m.Adopt(t.Context(), index); api.CodeOf(err) != api.CodeNetworkUnavailable {
				t.Errorf("adopting a slot %s: %v", what, err)
			}
		}
		got, err := m.Adopt(t.Context(), keep.Index)
		must(t, err)
		if got != keep {
			t.Errorf("adopted %+v, want %+v", got, keep)
		}
		if _, err := m.Adopt(t.Context(), keep.Index); err == nil {
			t.Error("a slot was adopted twice")
		}
		must(t, m.Sweep(t.Context(), nil)) // what was adopted stays without being named
		for _, s := range []Slot{lose, linkOnly, nameOnly} {
			if _, err := os.Stat(s.Namespace); err == nil {
				t.Errorf("namespace %s was not swept", s.Namespace)
			}
			if _, err := netlink.LinkByName(s.HostInterface); err == nil {
				t.Errorf("link %s was not swept", s.HostInterface)
			}
		}
		for _, s := range []Slot{keep, foreign} {
			if _, err := os.Stat(s.Namespace); err != nil {
				t.Error(err)
			}
		}
		must(t, m.Release(t.Context(), got))
		must(t, m.Close(t.Context()))
		must(t, other.Release(t.Context(), foreign))
		must(t, other.Close(t.Context()))
		if after := inventory(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// A slot whose maker dies before the end is removed by the kernel.
func TestHalfMadeSlotVanishes(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := m.cfg.slot(7)
		n, err := newNetns()
		must(t, err)
		_, err = m.kernel.addLink(s, n, kindOpen)
		must(t, err)
		n.close() // as the death of the process does
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if _, err := netlink.LinkByName(s.HostInterface); err != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the link is still there")
			}
		}
		must(t, m.Close(t.Context()))
	})
}

func TestPoolAndTimes(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		m := newManager(t, Config{Ahead: 4})
		var made, removed []time.Duration
		for range 20 {
			start := time.Now()
			s := take(t, m) // Run does not run yet: made on demand
			made = append(made, time.Since(start))
			start = time.Now()
			must(t, m.Release(t.Context(), s))
			removed = append(removed, time.Since(start))
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- m.Run(ctx) }()
		waitReady := func() {
			for deadline := time.Now().Add(30 * time.Second); m.Ready() < 4; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("no slots were made ahead")
				}
			}
		}
		var taken []time.Duration
		var released []Slot
		for range 5 {
			waitReady()
			for range 4 {
				start := time.Now()
				released = append(released, take(t, m))
				taken = append(taken, time.Since(start))
			}
		}
		if got := m.Free(); got != 16384-1-len(released) {
			t.Errorf("free %d with %d in use", got, len(released))
		}
		for _, s := range released {
			must(t, m.Release(t.Context(), s))
		}
		stop()
		must(t, <-ran)
		for _, s := range released {
			if _, err := os.Stat(s.Namespace); err == nil {
				t.Errorf("Run ended before %s was removed", s.Namespace)
			}
		}
		must(t, m.Close(t.Context()))
		t.Logf("slot made in p50 %v max %v; removed in p50 %v max %v; taken ready-made in p50 %v max %v",
			p50(made), slices.Max(made), p50(removed), slices.Max(removed), p50(taken), slices.Max(taken))
	})
}

func p50(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func TestNoSlotLeft(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{Prefix: netip.MustParsePrefix("10.9.8.0/28")})
		a, b, c := take(t, m), take(t, m), take(t, m)
		if _, err := m.Take(t.Context()); api.CodeOf(err) != api.CodeCapacity {
			t.Errorf("a fourth slot of three: %v", err)
		}
		if m.Free() != 0 {
			t.Errorf("free %d of none", m.Free())
		}
		for _, s := range []Slot{a, b, c} {
			must(t, m.Release(t.Context(), s))
		}
		must(t, m.Close(t.Context()))
	})
}
