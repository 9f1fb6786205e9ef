package hostnet

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"path"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// hostSettings are those of the host's end. It forwards for its guest, answers
// questions only about its own address (else a guest learns the host's others),
// and takes no routing advice.
var hostSettings = []struct{ name, value string }{
	{"forwarding", "1"},
	{"rp_filter", "1"},
	{"arp_ignore", "1"},
	{"proxy_arp", "0"},
	{"accept_redirects", "0"},
	{"accept_source_route", "0"},
	{"route_localnet", "0"},
}

// create makes slot i, or says errTaken.
func (k *kernel) create(i int) (Slot, error) {
	return k.createAs(i, kindOpen, int(k.mtu.Load()))
}

func (k *kernel) createAs(i int, as kind, mtu int) (Slot, error) {
	s := k.cfg.slot(i)
	s.MTU = mtu
	if as == kindGate {
		s.Tap = ""
	}
	// Looked up first: a namespace is too dear to find out with.
	if _, err := k.host.LinkByName(s.HostInterface); err == nil {
		return Slot{}, errTaken
	}
	n, err := newNetns()
	if err != nil {
		return Slot{}, unavailable(err, "a network namespace cannot be made")
	}
	defer n.close()
	link, err := k.addLink(s, n, as)
	if errors.Is(err, unix.EEXIST) {
		return Slot{}, errTaken
	}
	if err != nil {
		return Slot{}, unavailable(err, "a veth pair cannot be made")
	}
	if err := k.wire(s, link, n); err != nil {
		return Slot{}, errors.Join(unavailable(err, "network slot "+strconv.Itoa(i)+" cannot be made"), k.host.LinkDel(link))
	}
	return s, nil
}

func (k *kernel) addLink(s Slot, n *netns, as kind) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Group = k.cfg.linkGroup(as)
	attrs.Name = s.HostInterface
	attrs.MTU = s.MTU
	attrs.HardwareAddr = hardware(hostMAC)
	link := netlink.NewVeth(attrs)
	link.PeerName = s.Interface
	link.PeerHardwareAddr = hardware(s.MAC)
	link.PeerNamespace = netlink.NsFd(n.file.Fd())
	return link, k.host.LinkAdd(link)
}

// wire configures a slot whose link exists, and names it last.
func (k *kernel) wire(s Slot, link netlink.Link, n *netns) error {
	if err := k.host.LinkSetAlias(link, k.cfg.alias()); err != nil {
		return err
	}
	if err := disableIPv6(s.HostInterface); err != nil {
		return err
	}
	for _, set := range hostSettings {
		if err := setSysctl("ipv4", s.HostInterface, set.name, set.value); err != nil {
			return err
		}
	}
	if err := n.up(); err != nil {
		return err
	}
	if s.Tap != "" {
		if err := n.addTap(s); err != nil {
			return err
		}
	}
	if err := k.host.LinkSetUp(link); err != nil {
		return err
	}
	if err := k.host.AddrAdd(link, &netlink.Addr{IPNet: ipNet(s.Gateway)}); err != nil {
		return err
	}
	if err := k.host.NeighAdd(neighbour(s, link)); err != nil {
		return err
	}
	return n.name(s.Namespace)
}

// neighbour tells the host where the guest is, for good: no question has to be
// asked, and no guest can answer for another.
func neighbour(s Slot, link netlink.Link) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex:    link.Attrs().Index,
		Family:       netlink.FAMILY_V4,
		State:        netlink.NUD_PERMANENT,
		IP:           s.Address.Addr().AsSlice(),
		HardwareAddr: hardware(s.MAC),
	}
}

// remove takes slot i of this owner away, whatever is there of it. What the table
// has of it goes first: a process that dies between the steps leaves a slot that
// owned finds, and never an index that is free and still in groups. The link goes
// next: it ends the guest's end too, even if a process holds the namespace.
func (k *kernel) remove(i int) error {
	s := k.cfg.slot(i)
	link, err := k.host.LinkByName(s.HostInterface)
	switch {
	case err == nil && link.Attrs().Alias == k.cfg.alias():
		err = k.removeLinked(i, link)
	case errors.As(err, &netlink.LinkNotFoundError{}):
		err = k.reclaim(i)
	case err != nil:
		err = unavailable(err, "the link of a network slot cannot be found")
	}
	if err != nil {
		return err
	}
	if err := unname(s.Namespace); err != nil {
		return unavailable(err, "the namespace of a network slot cannot be removed")
	}
	k.dropSlot(i)
	return nil
}

func (k *kernel) removeLinked(i int, link netlink.Link) error {
	if err := k.forgetSlot(i); err != nil {
		return refusedBy(err, "the rules of a network slot cannot be removed")
	}
	if err := k.host.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return unavailable(err, "the link of a network slot cannot be removed")
	}
	return nil
}

// reclaim removes what the table has of a slot without a link, unless somebody
// takes the index: then it is theirs. A link that no namespace keeps takes it
// meanwhile.
func (k *kernel) reclaim(i int) (err error) {
	k.mu.Lock()
	clean := !k.hasTableState(k.of(i))
	k.mu.Unlock()
	if clean {
		return nil
	}
	n, err := newNetns()
	if err != nil {
		return unavailable(err, "a network namespace cannot be made")
	}
	defer n.close()
	link, err := k.addLink(k.cfg.slot(i), n, kindOffline)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return unavailable(err, "a veth pair cannot be made")
	}
	return k.removeLinked(i, link)
}

// disown makes sure that what an earlier process applied to a slot, which nobody
// here knows, is looked for when the slot is removed.
func (k *kernel) disown(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.slots[i]; !ok {
		k.slots[i] = inForce{}
	}
}

// leftover lists the slots of this owner, and those that the table names and that
// have no link: theirs went without their server's doing.
func (k *kernel) leftover() ([]int, error) {
	out, err := k.owned()
	if err != nil {
		return nil, err
	}
	named, err := k.indexesInTable()
	if err != nil {
		return nil, err
	}
	for _, i := range out {
		delete(named, i)
	}
	for i := range named {
		if _, err := k.host.LinkByName(linkName(i)); errors.As(err, &netlink.LinkNotFoundError{}) {
			out = append(out, i)
		}
	}
	return out, nil
}

// owned lists the slots of this owner by namespaces and by links.
func (k *kernel) owned() ([]int, error) {
	found := map[int]bool{}
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		return nil, unavailable(err, "the network namespaces cannot be listed")
	}
	for _, e := range entries {
		if i, ok := slotIndex(e.Name(), linkPrefix+k.cfg.Owner+"-"); ok {
			found[i] = true
		}
	}
	links, err := k.slotLinks()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if i, ok := slotIndex(l.Attrs().Name, linkPrefix); ok && l.Attrs().Alias == k.cfg.alias() {
			found[i] = true
		}
	}
	var out []int
	for i := range found {
		out = append(out, i)
	}
	return out, nil
}

// adopt takes slot i over from an earlier process if it is whole. Which rules
// are in force there is not known.
func (k *kernel) adopt(i int) (Slot, error) {
	s, err := k.adoptAs(i, kindOpen)
	if err != nil {
		return Slot{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slots[i] = inForce{}
	return s, nil
}

func (k *kernel) adoptAs(i int, as kind) (Slot, error) {
	s := k.cfg.slot(i)
	broken := func(what string) (Slot, error) {
		return Slot{}, api.Errorf(api.CodeNetworkUnavailable, "network slot %d is damaged: %s", i, what)
	}
	link, err := k.host.LinkByName(s.HostInterface)
	if err != nil {
		return broken("the link " + s.HostInterface + " is gone")
	}
	if link.Attrs().Alias != k.cfg.alias() {
		return broken("the link " + s.HostInterface + " belongs to another server")
	}
	if has := k.cfg.kindOf(link.Attrs().Group); (has == kindGate) != (as == kindGate) {
		return broken("the link " + s.HostInterface + " has another purpose")
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return broken("the link " + s.HostInterface + " is down")
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return k.host.AddrList(link, netlink.FAMILY_V4) })
	if err != nil || len(addrs) != 1 || !addrs[0].IP.Equal(s.Gateway.AsSlice()) {
		return broken("the link " + s.HostInterface + " does not have the address " + s.Gateway.String())
	}
	if getSysctl("ipv4", s.HostInterface, "forwarding") != "1" {
		return broken("the link " + s.HostInterface + " does not forward")
	}
	if !k.knowsNeighbour(s, link) {
		return broken("the link " + s.HostInterface + " does not know its guest")
	}
	n, err := openNetns(s.Namespace)
	if err != nil {
		return broken("the namespace " + path.Base(s.Namespace) + " is gone")
	}
	defer n.close()
	peer, err := n.route.LinkByName(s.Interface)
	if err != nil || peer.Attrs().ParentIndex != link.Attrs().Index || peer.Attrs().Flags&net.FlagUp == 0 ||
		!bytes.Equal(peer.Attrs().HardwareAddr, hardware(s.MAC)) {
		return broken("the interface in " + path.Base(s.Namespace) + " is not the guest's")
	}
	if _, err := n.route.LinkByName(tapLink); err != nil {
		s.Tap = "" // made when the server made none
	}
	s.MTU = peer.Attrs().MTU
	return s, nil
}

func (k *kernel) knowsNeighbour(s Slot, link netlink.Link) bool {
	list, err := dump(func() ([]netlink.Neigh, error) { return k.host.NeighList(link.Attrs().Index, netlink.FAMILY_V4) })
	if err != nil {
		return false
	}
	for _, n := range list {
		if n.IP.Equal(s.Address.Addr().AsSlice()) {
			return n.State&netlink.NUD_PERMANENT != 0 && bytes.Equal(n.HardwareAddr, hardware(s.MAC))
		}
	}
	return false
}

func hardware(mac string) net.HardwareAddr {
	h, err := net.ParseMAC(mac)
	if err != nil {
		panic(err) // a constant of this package
	}
	return h
}

func ipNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(slotBits, 32)}
}
