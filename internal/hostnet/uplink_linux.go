package hostnet

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// uplink is an interface that a default route leaves by.
type uplink struct {
	name string
	mtu  int
}

// uplinks finds them by route, in every routing table: a VPN keeps its default
// route in one of its own. None is a host that is offline.
func (k *kernel) uplinks() ([]uplink, error) {
	return uplinksOf(k.host)
}

func uplinksOf(h *netlink.Handle) ([]uplink, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Dst: nil}
	routes, err := dump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
	})
	if err != nil {
		return nil, unavailable(err, "the host's routes cannot be listed")
	}
	var ups []uplink
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST {
			continue
		}
		indexes := []int{r.LinkIndex}
		for _, hop := range r.MultiPath {
			indexes = append(indexes, hop.LinkIndex)
		}
		for _, i := range indexes {
			l, err := h.LinkByIndex(i)
			if err != nil { // gone since, or a route without a device
				continue
			}
			u := uplink{l.Attrs().Name, l.Attrs().MTU}
			if u.name != "lo" && !slices.Contains(ups, u) {
				ups = append(ups, u)
			}
		}
	}
	slices.SortFunc(ups, func(a, b uplink) int { return cmp.Compare(a.name, b.name) })
	return ups, nil
}

// slotMTU is what fits through every uplink, so that guests need not learn a
// smaller size from each peer anew.
func slotMTU(ups []uplink) int {
	mtu := maxMTU
	for _, u := range ups {
		if u.mtu >= 576 {
			mtu = min(mtu, u.mtu)
		}
	}
	return mtu
}

// checkRange refuses a prefix that the host's networks use: its routes would
// lead away from the sandboxes, or ours away from its machines.
func (k *kernel) checkRange(cfg Config) error {
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := dump(func() ([]netlink.Route, error) {
		return k.host.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return unavailable(err, "the host's routes cannot be listed")
	}
	for _, r := range routes {
		dst, ok := prefixOf(r.Dst)
		if !ok || dst.Bits() == 0 || !dst.Overlaps(cfg.Prefix) {
			continue
		}
		name := "none"
		if r.LinkIndex > 0 {
			l, err := k.host.LinkByIndex(r.LinkIndex)
			if err != nil {
				continue // a slot that went away since
			}
			name = l.Attrs().Name
		}
		if i, ok := slotIndex(name, linkPrefix); ok && i < cfg.slots() && cfg.network(i) == dst {
			continue // a slot, cut from the same prefix
		}
		direct := r.Scope == netlink.SCOPE_LINK
		if dst.Bits() >= cfg.Prefix.Bits() || direct {
			return api.Errorf(api.CodeNetworkUnavailable,
				"the sandbox network %s overlaps the host's route to %s (interface %s)", cfg.Prefix, dst, name).
				WithHint("Give sandboxes another range that nothing on this host's networks uses.")
		}
	}
	return nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP.To4())
	if !ok {
		return netip.Prefix{}, false
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a, ones), true
}
