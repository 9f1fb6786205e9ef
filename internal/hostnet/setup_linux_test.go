package hostnet

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

func TestOfflineHost(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{})
		s := take(t, m)
		if s.MTU != maxMTU {
			t.Errorf("MTU %d", s.MTU)
		}
		g := guest(t, s)
		w := newWorld(t) // the host goes online
		listen(t, w.ns, "0.0.0.0:80")
		must(t, m.kernel.refresh(t.Context()))
		reaches(t, g, webPublic+":80")
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
		if got := getSysctl("ipv4", "wan0", "forwarding"); got != "0" {
			t.Errorf("forwarding of the uplink is %q after Close, was 0", got)
		}
	})
}

func TestRangeInUse(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		before := inventory(t)
		newWorld(t)
		for _, prefix := range []string{"192.0.2.0/24", "192.0.0.0/16"} {
			m := New(Config{Owner: "owneraaa", Prefix: netip.MustParsePrefix(prefix)}, slog.New(slog.DiscardHandler))
			err := m.Setup(t.Context())
			if api.CodeOf(err) != api.CodeNetworkUnavailable || !strings.Contains(err.Error(), "wan0") {
				t.Errorf("%s: %v", prefix, err)
			}
		}
		if _, err := os.Stat(runDir); err == nil {
			t.Errorf("a failed Setup left %s; before: %s", runDir, before)
		}
	})
}

func TestNotRoot(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		must(t, onSpareThread(func() error {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
				return errno
			}
			m := New(Config{Owner: "owneraaa"}, slog.New(slog.DiscardHandler))
			if err := m.Setup(t.Context()); api.CodeOf(err) != api.CodeNotRoot {
				t.Errorf("Setup without root: %v", err)
			}
			if c := m.Checks(t.Context()); len(c) != 1 || c[0].OK {
				t.Errorf("checks without root: %v", c)
			}
			return nil
		}))
	})
}

func TestChecks(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		before := inventory(t)
		m := New(Config{Owner: "owneraaa"}, slog.New(slog.DiscardHandler))
		for _, c := range m.Checks(t.Context()) {
			t.Logf("%+v", c)
			if !c.OK {
				t.Errorf("%s: %s", c.Name, c.Detail)
			}
			if c.Warning != (c.Name == "resolvers") {
				t.Errorf("%s warns: %v (%s)", c.Name, c.Warning, c.Detail)
			}
		}
		if after := inventory(t); after != before {
			t.Errorf("checks changed the machine; before:\n%s\nafter:\n%s", before, after)
		}
		nft, err := nftables.New()
		must(t, err)
		tab := nft.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
		policy := nftables.ChainPolicyDrop
		nft.AddChain(&nftables.Chain{Name: "FORWARD", Table: tab, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy})
		nft.AddChain(&nftables.Chain{Name: "INPUT", Table: tab, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, Policy: &policy})
		must(t, nft.Flush())
		for _, chain := range []string{"filter/FORWARD", "filter/INPUT"} {
			if !slices.ContainsFunc(m.Checks(t.Context()), func(c Check) bool { return c.Warning && strings.Contains(c.Detail, chain) }) {
				t.Errorf("no warning of %s, which drops by default", chain)
			}
		}
	})
}

// The whole cycle in the namespaces of the real machine, beside whatever else
// uses it.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	m := New(Config{Owner: strings.ToLower(api.NewID()[:8])}, slog.New(slog.DiscardHandler))
	for _, c := range m.Checks(t.Context()) {
		t.Logf("%+v", c)
	}
	must(t, m.Setup(t.Context()))
	s := take(t, m)
	g := guest(t, s)
	daemon := listen(t, g, "0.0.0.0:49983")
	c, err := net.DialTimeout("tcp4", s.Address.Addr().String()+":49983", 10*time.Second)
	must(t, err)
	c.Close()
	daemon.await(t, 1)
	must(t, m.Release(t.Context(), s))
	if _, err := os.Stat(s.Namespace); err == nil {
		t.Errorf("%s is still there", s.Namespace)
	}
	if _, err := netlink.LinkByName(s.HostInterface); err == nil {
		l, _ := netlink.LinkByName(s.HostInterface)
		if l != nil && l.Attrs().Alias == m.cfg.alias() {
			t.Errorf("%s is still there", s.HostInterface)
		}
	}
	must(t, m.Close(t.Context()))
}
