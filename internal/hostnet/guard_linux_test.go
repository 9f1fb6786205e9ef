package hostnet

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestIPv6IsDropped(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		m := newManager(t, Config{})
		s := take(t, m)
		host, err := netlink.LinkByName(s.HostInterface)
		must(t, err)
		if addrs, err := netlink.AddrList(host, netlink.FAMILY_V6); err != nil || len(addrs) != 0 {
			t.Errorf("the host's end has IPv6 addresses: %v %v", addrs, err)
		}
		g := guest(t, s)
		// Turned on against the settings, the rules alone must hold. The
		// addresses are such that rules for IPv4, misreading the header, would
		// see public ones.
		must(t, setSysctl("ipv6", s.HostInterface, "disable_ipv6", "0"))
		must(t, netlink.AddrAdd(host, &netlink.Addr{IPNet: cidr("fd99::808:808:0:1/64"), Flags: unix.IFA_F_NODAD}))
		must(t, g.in(func() error { return setSysctl("ipv6", guestLink, "disable_ipv6", "0") }))
		l, err := g.route.LinkByName(guestLink)
		must(t, err)
		must(t, g.route.AddrAdd(l, &netlink.Addr{IPNet: cidr("fd99::808:808:0:2/64"), Flags: unix.IFA_F_NODAD}))
		ln, err := net.Listen("tcp6", "[::]:80")
		must(t, err)
		defer ln.Close()
		// Neighbours that need no asking, since the asking is dropped too.
		must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: host.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP("fd99::808:808:0:2"), HardwareAddr: hardware(guestMAC)}))
		must(t, g.route.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP("fd99::808:808:0:1"), HardwareAddr: hardware(hostMAC)}))
		// And the host routes IPv6, to a world that knows the way back.
		wan, err := netlink.LinkByName("wan0")
		must(t, err)
		must(t, netlink.AddrAdd(wan, &netlink.Addr{IPNet: cidr("fd77::1/64"), Flags: unix.IFA_F_NODAD}))
		must(t, setSysctl("ipv6", "all", "forwarding", "1"))
		must(t, w.ns.in(func() error { return setSysctl("ipv6", guestLink, "disable_ipv6", "0") }))
		out, err := w.ns.route.LinkByName(guestLink)
		must(t, err)
		must(t, w.ns.route.AddrAdd(out, &netlink.Addr{IPNet: cidr("fd77::2/64"), Flags: unix.IFA_F_NODAD}))
		must(t, w.ns.route.RouteAdd(&netlink.Route{Dst: cidr("fd99::/64"), Gw: net.ParseIP("fd77::1")}))
		must(t, g.route.RouteAdd(&netlink.Route{Dst: cidr("fd77::/64"), Gw: net.ParseIP("fd99::808:808:0:1")}))
		var far net.Listener
		must(t, w.ns.in(func() (err error) { far, err = net.Listen("tcp6", "[fd77::2]:80"); return err }))
		defer far.Close()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			c, err := net.DialTimeout("tcp6", "[fd77::2]:80", 2*time.Second)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the host itself does not reach the world over IPv6: %v", err)
			}
		}
		for _, target := range []string{"[fd99::808:808:0:1]:80", "[fd77::1]:80", "[fd77::2]:80"} {
			if c, err := g.dial("tcp6", target); err == nil {
				c.Close()
				t.Errorf("IPv6 to %s works and must not", target)
			}
		}
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

// A guest cannot find out the host's addresses by asking who has them.
func TestHostAnswersARPForTheGatewayOnly(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		newWorld(t)
		m := newManager(t, Config{})
		s := take(t, m)
		g := guest(t, s)
		l, err := g.route.LinkByName(guestLink)
		must(t, err)
		must(t, g.route.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: cidr(hostWAN + "/32"), Scope: netlink.SCOPE_LINK}))
		knows := func(ip string) bool {
			if c, err := g.dial("udp4", ip+":9"); err == nil {
				_, _ = c.Write([]byte("x"))
				c.Close()
			}
			time.Sleep(time.Second)
			list, err := g.route.NeighList(l.Attrs().Index, netlink.FAMILY_V4)
			must(t, err)
			for _, n := range list {
				if n.IP.String() == ip && n.HardwareAddr.String() == hostMAC {
					return true
				}
			}
			return false
		}
		if !knows(s.Gateway.String()) {
			t.Error("the gateway does not answer ARP")
		}
		if knows(hostWAN) {
			t.Error("the host answers ARP for its other addresses")
		}
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

// A firewall manager that reloads removes all tables.
func TestRulesComeBack(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{Ahead: 1})
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- m.Run(ctx) }()
		nft, err := nftables.New()
		must(t, err)
		nft.FlushRuleset()
		must(t, nft.Flush())
		if inForceWhole(m) {
			t.Fatal("the table is still there")
		}
		for deadline := time.Now().Add(30 * time.Second); !inForceWhole(m); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the rules did not come back")
			}
		}
		stop()
		must(t, <-ran)
		must(t, m.Close(t.Context()))
	})
}
