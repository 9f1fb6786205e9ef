package hostnet

import (
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A microVM has the same addresses in every slot, so that one that was restored
// does not notice that it moved. Its tap is in the slot's namespace, whose kernel
// translates between them and the slot's own; the host sees the slot's alone.
var (
	tapGuest   = netip.MustParsePrefix("192.0.0.2/30")
	tapGateway = netip.MustParsePrefix("192.0.0.1/30")
)

// addTap makes the tap of a slot and the way between it and the guest's end.
func (n *netns) addTap(s Slot) error {
	err := n.inside(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = tapLink
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR})
	})
	if err != nil {
		return err
	}
	tap, err := n.route.LinkByName(tapLink)
	if err != nil {
		return err
	}
	for _, set := range []func() error{
		func() error { return n.route.LinkSetHardwareAddr(tap, hardware(hostMAC)) },
		func() error { return n.route.LinkSetMTU(tap, s.MTU) },
		func() error { return n.route.LinkSetUp(tap) },
		func() error {
			return n.route.AddrAdd(tap, &netlink.Addr{IPNet: &net.IPNet{IP: tapGateway.Addr().AsSlice(), Mask: net.CIDRMask(tapGateway.Bits(), 32)}})
		},
		func() error { return n.knowForGood(tap, tapGuest.Addr(), s.MAC) },
		func() error { return n.translate(s) },
		func() error { return n.routeOut(s) },
	} {
		if err := set(); err != nil {
			return err
		}
	}
	return nil
}

// inside runs f on a thread in the namespace.
func (n *netns) inside(f func() error) error {
	return onSpareThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func (n *netns) knowForGood(l netlink.Link, a netip.Addr, mac string) error {
	return n.route.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT,
		IP: a.AsSlice(), HardwareAddr: hardware(mac)})
}

// routeOut comes last: the namespace forwards when its rules are there. The
// guest's end has no address, so its kernel answers nobody.
func (n *netns) routeOut(s Slot) error {
	out, err := n.route.LinkByName(s.Interface)
	if err != nil {
		return err
	}
	if err := n.knowForGood(out, s.Gateway, s.GatewayMAC); err != nil {
		return err
	}
	err = n.route.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: s.Gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
	if err != nil {
		return err
	}
	return n.inside(func() error {
		for _, link := range []string{tapLink, s.Interface} {
			if err := setSysctl("ipv4", link, "forwarding", "1"); err != nil {
				return err
			}
		}
		return nil
	})
}

// translate writes the namespace's own table. What does not come from the guest's
// address, or is for anything but the guest, ends here.
func (n *netns) translate(s Slot) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.file.Fd())))
	if err != nil {
		return err
	}
	r := &ruleset{conn: conn, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}}
	conn.AddTable(r.table)
	guest, slot := tapGuest.Addr().As4(), s.Address.Addr().As4()
	fromTap := link(expr.MetaKeyIIFNAME, expr.CmpOpEq, linkName16(tapLink))
	source := func(op expr.CmpOp) []expr.Any {
		return []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
			&expr.Cmp{Op: op, Register: 1, Data: guest[:]},
		}
	}
	become := func(kind expr.NATType, to [4]byte) []expr.Any {
		return []expr.Any{&expr.Immediate{Register: 1, Data: to[:]}, &expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: 1}}
	}
	raw := r.base("raw", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	r.rule(raw, fromTap, source(expr.CmpOpNeq), drop())
	in := r.base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	r.rule(in, drop())
	to := r.base("to", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	r.rule(to, link(expr.MetaKeyIIFNAME, expr.CmpOpEq, linkName16(s.Interface)), destinationWithin(netip.PrefixFrom(s.Address.Addr(), 32)), become(expr.NATTypeDestNAT, guest))
	from := r.base("from", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	r.rule(from, link(expr.MetaKeyOIFNAME, expr.CmpOpEq, linkName16(s.Interface)), source(expr.CmpOpEq), become(expr.NATTypeSourceNAT, slot))
	return conn.Flush()
}

// checkTaps is for a server that makes them.
func checkTaps() Check {
	c := Check{Name: "taps for microVMs"}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		c.Detail = "taps cannot be made (kernel module tun): " + err.Error()
		return c
	}
	f.Close()
	c.OK, c.Detail = true, "available"
	return c
}
