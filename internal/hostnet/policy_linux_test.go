package hostnet

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestSandboxReachesTheInternet(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		listen(t, w.ns, "0.0.0.0:80")
		m := newManager(t, Config{})
		s := take(t, m)
		if s.MTU != 1400 {
			t.Errorf("slot MTU %d, the uplink's is 1400", s.MTU)
		}
		g := guest(t, s)
		if from := reaches(t, g, webPublic+":80"); from != hostWAN {
			t.Errorf("the world saw %s, want the host's address", from)
		}
		sendMuch(t, g, webPublic+":80")
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

// sendMuch sends 16 MiB through an echo and compares.
func sendMuch(t *testing.T, n *netns, address string) {
	t.Helper()
	c, err := n.dial("tcp4", address)
	must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	line := make([]byte, 1)
	for line[0] != '\n' {
		_, err := c.Read(line)
		must(t, err)
	}
	data := make([]byte, 16<<20)
	rand.Read(data)
	sent := make(chan error, 1)
	go func() { _, err := c.Write(data); sent <- err }()
	got := make([]byte, len(data))
	_, err = io.ReadFull(c, got)
	must(t, err)
	must(t, <-sent)
	if !bytes.Equal(got, data) {
		t.Error("bytes were changed on the way")
	}
}

func TestSandboxReachesNothingInside(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		inside := listen(t, w.ns, "0.0.0.0:80")
		onHost := listen(t, nil, "0.0.0.0:80")
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "lan0"
		lan := netlink.NewVeth(attrs)
		lan.PeerName = "lan1"
		must(t, netlink.LinkAdd(lan))
		must(t, netlink.LinkSetUp(lan))
		must(t, netlink.AddrAdd(lan, &netlink.Addr{IPNet: cidr("203.0.113.7/24")}))

		m := newManager(t, Config{})
		a, b := take(t, m), take(t, m)
		ga, gb := guest(t, a), guest(t, b)
		neighbour := listen(t, gb, "0.0.0.0:80")

		// The host reaches all of it, so what follows is the rules' doing.
		before := inside.seen.Load()
		for _, ip := range insides {
			c, err := net.DialTimeout("tcp4", ip+":80", 5*time.Second)
			must(t, err)
			c.Close()
		}
		inside.await(t, before+int64(len(insides)))
		c, err := net.DialTimeout("tcp4", b.Address.Addr().String()+":80", 5*time.Second)
		must(t, err)
		c.Close()
		neighbour.await(t, 1)
		reaches(t, ga, webPublic+":80")

		in, host, near := inside.seen.Load(), onHost.seen.Load(), neighbour.seen.Load()
		var targets []string
		for _, ip := range insides {
			targets = append(targets, ip+":80")
		}
		for _, ip := range []string{hostWAN, "203.0.113.7", a.Gateway.String(), b.Gateway.String(), b.Address.Addr().String(), "192.0.2.255", "255.255.255.255", "224.0.0.1"} {
			targets = append(targets, ip+":80")
		}
		unreachable(t, ga, targets...)
		if n := inside.seen.Load() - in; n != 0 {
			t.Errorf("%d packets or connections got to the inside", n)
		}
		if n := onHost.seen.Load() - host; n != 0 {
			t.Errorf("%d packets or connections got to the host", n)
		}
		if n := neighbour.seen.Load() - near; n != 0 {
			t.Errorf("%d packets or connections got to a neighbour", n)
		}
		for _, s := range []Slot{a, b} {
			must(t, m.Release(t.Context(), s))
		}
		must(t, m.Close(t.Context()))
	})
}

// Neighbours are kept apart whatever range they are in, not only in one that is
// denied as private.
func TestNeighboursInAPublicRange(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{Prefix: netip.MustParsePrefix("203.0.113.0/24")})
		a, b := take(t, m), take(t, m)
		ga, gb := guest(t, a), guest(t, b)
		neighbour := listen(t, gb, "0.0.0.0:80")
		unreachable(t, ga, b.Address.Addr().String()+":80")
		if neighbour.seen.Load() != 0 {
			t.Error("a packet got to a neighbour")
		}
		for _, s := range []Slot{a, b} {
			must(t, m.Release(t.Context(), s))
		}
		must(t, m.Close(t.Context()))
	})
}

// A port that another program publishes by translating addresses is the host's
// too, wherever it leads.
func TestPublishedPortIsUnreachable(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		listen(t, w.ns, "0.0.0.0:80")
		publish(t, 8080, webPublic, 80)
		m := newManager(t, Config{})
		s := take(t, m)
		g := guest(t, s)
		reaches(t, g, webPublic+":80")
		unreachable(t, g, hostWAN+":8080", s.Gateway.String()+":8080")
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

func publish(t *testing.T, from uint16, to string, toPort uint16) {
	t.Helper()
	nft, err := nftables.New()
	must(t, err)
	tab := nft.AddTable(&nftables.Table{Name: "publish", Family: nftables.TableFamilyIPv4})
	ch := nft.AddChain(&nftables.Chain{Name: "pre", Table: tab, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	exprs := port(unix.IPPROTO_TCP, from)
	exprs = append(exprs,
		&expr.Immediate{Register: 1, Data: net.ParseIP(to).To4()},
		&expr.Immediate{Register: 2, Data: []byte{byte(toPort >> 8), byte(toPort)}},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2})
	nft.AddRule(&nftables.Rule{Table: tab, Chain: ch, Exprs: exprs})
	must(t, nft.Flush())
}

func TestForgedSourceIsDropped(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		web := listen(t, w.ns, "0.0.0.0:80")
		m := newManager(t, Config{})
		a, b := take(t, m), take(t, m)
		g := guest(t, a)
		reaches(t, g, webPublic+":80")
		before := web.seen.Load()
		forged := []string{b.Address.Addr().String(), hostWAN, "203.0.113.9", "8.8.8.8"}
		for _, ip := range forged {
			g.addAddr(t, guestLink, ip+"/32")
		}
		send := func(ip string) {
			must(t, g.in(func() error {
				c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(ip)}, &net.UDPAddr{IP: net.ParseIP(webPublic), Port: 80})
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = c.Write([]byte("x"))
				return err
			}))
		}
		// With the fallback of the sysctl gone, the rules alone must hold.
		for _, value := range []string{"1", "0"} {
			must(t, setSysctl("ipv4", a.HostInterface, "rp_filter", value))
			for _, ip := range forged {
				send(ip)
			}
		}
		// An honest datagram sent last arrives, so the others had their time.
		send(a.Address.Addr().String())
		web.await(t, before+1)
		if n := web.seen.Load() - before; n != 1 {
			web.mu.Lock()
			t.Errorf("%d datagrams arrived, want the honest one: %v", n, web.from)
			web.mu.Unlock()
		}
		for _, s := range []Slot{a, b} {
			must(t, m.Release(t.Context(), s))
		}
		must(t, m.Close(t.Context()))
	})
}

func TestOnlyTheHostDialsGuests(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		m := newManager(t, Config{})
		s := take(t, m)
		g := guest(t, s)
		daemon := listen(t, g, "0.0.0.0:49983")
		target := s.Address.Addr().String() + ":49983"
		c, err := net.DialTimeout("tcp4", target, 5*time.Second)
		must(t, err)
		c.Close()
		daemon.await(t, 1)
		before := daemon.seen.Load()
		unreachable(t, w.ns, target)
		// On a router, nothing but the rules is in the way.
		must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
		must(t, m.kernel.refresh(t.Context()))
		unreachable(t, w.ns, target)
		if daemon.seen.Load() != before {
			t.Error("a packet from outside got to a guest")
		}
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}

// A host that was no router becomes none for others.
func TestUplinkPassesOnNothingElse(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		lan, err := newNetns()
		must(t, err)
		t.Cleanup(lan.close)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "lan0"
		link := netlink.NewVeth(attrs)
		link.PeerName, link.PeerNamespace = guestLink, netlink.NsFd(lan.file.Fd())
		must(t, netlink.LinkAdd(link))
		must(t, lan.up())
		must(t, netlink.LinkSetUp(link))
		must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: cidr("203.0.113.1/24")}))
		lan.addAddr(t, guestLink, "203.0.113.5/24")
		must(t, lan.route.RouteAdd(&netlink.Route{Gw: net.ParseIP("203.0.113.1")}))
		must(t, w.ns.route.RouteAdd(&netlink.Route{Dst: cidr("203.0.113.0/24"), Gw: net.ParseIP(hostWAN)}))
		must(t, setSysctl("ipv4", "lan0", "forwarding", "1")) // only the uplink is in the way
		secret := listen(t, lan, "0.0.0.0:80")

		m := newManager(t, Config{})
		unreachable(t, w.ns, "203.0.113.5:80")
		if secret.seen.Load() != 0 {
			t.Error("the uplink passed a packet on to another network")
		}
		// The host becomes a router: that is none of our business then.
		must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
		must(t, m.kernel.refresh(t.Context()))
		reaches(t, w.ns, "203.0.113.5:80")
		must(t, m.Close(t.Context()))
		if got := getSysctl("ipv4", "wan0", "forwarding"); got != "1" {
			t.Errorf("Close turned forwarding of a router off")
		}
	})
}

func TestPrivateResolverIsReachableForDNSOnly(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		w := newWorld(t)
		listen(t, w.ns, "0.0.0.0:80")
		listen(t, w.ns, resolver+":53")
		listen(t, w.ns, "10.99.0.1:53")
		must(t, os.WriteFile("/run/resolv.conf", []byte("nameserver 127.0.0.53\nnameserver ::1\n"), 0o644))
		must(t, os.MkdirAll("/run/systemd/resolve", 0o755))
		must(t, os.WriteFile("/run/systemd/resolve/resolv.conf",
			[]byte("# comment\nnameserver "+resolver+"\nnameserver "+hostWAN+"\nsearch x\nnameserver fd00::1\nnameserver nonsense\n"), 0o644))
		m := newManager(t, Config{})
		if got := m.Nameservers(); len(got) != 2 || got[0] != m.Gate().Address || got[1].String() != resolver {
			t.Fatalf("nameservers %v, want the gate and %s: the others are the host or not IPv4", got, resolver)
		}
		if got := HostResolvers(); len(got) != 2 || got[0].String() != "127.0.0.53" {
			t.Errorf("the host's own programs use %v", got)
		}
		s := take(t, m)
		g := guest(t, s)
		reaches(t, g, resolver+":53")
		c, err := g.dial("udp4", resolver+":53")
		must(t, err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Write([]byte("q"))
		must(t, err)
		if _, err := c.Read(make([]byte, 8)); err != nil {
			t.Errorf("DNS over UDP: %v", err)
		}
		unreachable(t, g, resolver+":80", "10.99.0.1:53")

		// The host moves to another resolver.
		must(t, os.WriteFile("/run/resolv.conf", []byte("nameserver 10.99.0.1\n"), 0o644))
		must(t, m.kernel.refresh(t.Context()))
		reaches(t, g, "10.99.0.1:53")
		unreachable(t, g, resolver+":53")
		must(t, m.Release(t.Context(), s))
		must(t, m.Close(t.Context()))
	})
}
