// Package hostnet makes places on a machine's network for sandboxes, called
// slots, and the rules that bound what a sandbox may reach.
//
// # A slot
//
// Slot i owns the i-th /30 of the prefix. Its host end is a veth named ps-<i>
// with the first address; the other end is eth0 of the network namespace
// /run/netns/ps-<owner>-<i>. That end has no address in the kernel: the
// runtime of the sandbox opens a packet socket on it and runs a network stack
// of its own with the second address. Hardware addresses are the same in every
// slot, so a restored guest does not notice that it moved. IPv6 is off at both
// ends.
//
// # Many servers on one machine
//
// Servers share the slots of a machine and the one nftables table. Creating the
// link ps-<i> is what takes slot i: the kernel lets one of two creators win.
// The name of the namespace says whose a slot is. The settings of the uplink
// belong to all servers together; the first makes them and the last one to
// leave, with no slot left on the machine, removes them and the table. A
// namespace is made without a name, wired, and named last, so that a server that
// dies halfway leaves nothing: the kernel removes what nothing refers to.
//
// The table has three layers, each changed in one transaction that leaves the
// others alone. The shared chains are always the same; what of them depends on
// the machine is in sets. Each server has chains of its own, which the shared
// ones find by the group of a packet's link. A slot has chains only when its
// rules are lists or when it is in a group; they are found by the link's name.
// The group of a slot's link says whose it is and which kind of rules it is
// under, so that a slot under the default rules needs nothing in the table, and
// a table that was flushed and put back by one server lets nothing of another's
// slots through until that one has put back its own.
//
// # Policy
//
// A sandbox reaches the internet over IPv4. It does not reach any address of
// the host, another sandbox, or a private, link-local (cloud metadata),
// carrier, benchmark, multicast or reserved range, except for DNS with the
// resolvers that the host itself uses. That is the floor, and Rules choose from
// what is above it; the operator may lower it for private ranges (Config.Pass),
// and slots that share a group reach each other. A sandbox cannot send under an
// address other than its own. What is refused is answered at once, with a reset
// or an ICMP message. The host may connect to sandboxes; nobody else can. Nothing
// of the host's own rules is changed: a packet needs the consent of both.
//
// Of the host, a sandbox reaches one thing: the gate of its server, for DNS and,
// under Rules with ByName, as the proxy that its TCP connections end at.
//
// Rules cost the packets of a connection nothing after its first, since what the
// kernel knows is let through; Apply forgets the connections that new rules deny.
// Whoever puts back a table that was lost does so too, and ends what guests
// opened to the host meanwhile.
package hostnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
)

// DefaultPrefix holds 16384 slots.
const DefaultPrefix = "10.200.0.0/16"

// Names and numbers every slot has in common.
const (
	linkPrefix = "ps-"
	guestLink  = "eth0"
	tapLink    = "tap0"
	netnsDir   = "/run/netns"
	guestMAC   = "02:70:73:00:00:02"
	hostMAC    = "02:70:73:00:00:01"
	slotBits   = 30
	maxMTU     = 1500
)

// Config is how a Manager works. The zero Prefix is DefaultPrefix.
type Config struct {
	// Prefix is the IPv4 range that slots are cut from, /8 to /29. It must
	// not be in use on the host's networks.
	Prefix netip.Prefix
	// Ahead is how many slots Run keeps ready for Take.
	Ahead int
	// Owner marks the slots of this server: 8 characters of [a-z0-9], the
	// same after a restart and different from every other server's.
	Owner string
	// Pass are private ranges that the operator opens to every sandbox of this
	// server, under its rules.
	Pass []netip.Prefix
	// Taps makes a tap in each slot for microVMs: 192.0.0.2/30 behind the
	// gateway 192.0.0.1 in every slot, translated to the slot's address. A
	// runtime with a packet socket of its own cannot use such a slot.
	Taps bool
}

// Slot is a place on the network for one sandbox. It may be stored as JSON.
type Slot struct {
	Index         int          `json:"index"`
	Namespace     string       `json:"namespace"`      // path of the network namespace
	Interface     string       `json:"interface"`      // the guest's end, within the namespace
	HostInterface string       `json:"host_interface"` // the host's end
	MAC           string       `json:"mac"`            // of the guest's end
	Address       netip.Prefix `json:"address"`        // of the guest
	Gateway       netip.Addr   `json:"gateway"`        // of the host's end
	GatewayMAC    string       `json:"gateway_mac,omitempty"`
	MTU           int          `json:"mtu"`
	Tap           string       `json:"tap,omitempty"` // within the namespace, if there is one
}

// Check is one line of a diagnosis. A warning does not keep sandboxes from
// starting.
type Check struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Warning bool   `json:"warning,omitempty"`
	Detail  string `json:"detail"`
}

var ownerPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{8}$`) })

func (c Config) withDefaults() (Config, error) {
	if !c.Prefix.IsValid() {
		c.Prefix = netip.MustParsePrefix(DefaultPrefix)
	}
	c.Prefix = c.Prefix.Masked()
	if !c.Prefix.Addr().Is4() || c.Prefix.Bits() < 8 || c.Prefix.Bits() >= slotBits {
		return c, api.Errorf(api.CodeInvalidRequest, "the sandbox network %s is not an IPv4 range between /8 and /29", c.Prefix)
	}
	for _, p := range c.Pass {
		if !p.IsValid() || !p.Addr().Is4() {
			return c, api.Errorf(api.CodeInvalidRequest, "the range %s to open to sandboxes is not one of IPv4", p)
		}
	}
	if !ownerPattern().MatchString(c.Owner) {
		return c, api.Errorf(api.CodeInternal, "the owner of network slots, %q, is not 8 characters of [a-z0-9]", c.Owner)
	}
	if c.Ahead < 0 || c.Ahead > c.slots() {
		return c, api.Errorf(api.CodeInvalidRequest, "%d slots ahead do not fit in %s", c.Ahead, c.Prefix)
	}
	return c, nil
}

// slots is how many slots the prefix holds.
func (c Config) slots() int { return 1 << (slotBits - c.Prefix.Bits()) }

// slot describes slot i, without its MTU.
func (c Config) slot(i int) Slot {
	net := c.network(i)
	gateway := net.Addr().Next()
	s := Slot{
		Index:         i,
		Namespace:     c.namespace(i),
		Interface:     guestLink,
		HostInterface: linkName(i),
		MAC:           guestMAC,
		Address:       netip.PrefixFrom(gateway.Next(), slotBits),
		Gateway:       gateway,
		GatewayMAC:    hostMAC,
	}
	if c.Taps {
		s.Tap = tapLink
	}
	return s
}

// network is the /30 of slot i.
func (c Config) network(i int) netip.Prefix {
	a := c.Prefix.Addr().As4()
	n := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	n += uint32(i) * 4
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), slotBits)
}

// indexOf is the slot whose guest has an address.
func (c Config) indexOf(a netip.Addr) (int, bool) {
	if !c.Prefix.Contains(a) {
		return 0, false
	}
	from, to := c.Prefix.Addr().As4(), a.As4()
	i := int(binary.BigEndian.Uint32(to[:])-binary.BigEndian.Uint32(from[:])) / 4
	return i, c.slot(i).Address.Addr() == a
}

func (c Config) namespace(i int) string {
	return fmt.Sprintf("%s/%s%s-%d", netnsDir, linkPrefix, c.Owner, i)
}

// alias is the label of this owner's links, for people and for Sweep.
func (c Config) alias() string { return "pandastack:" + c.Owner }

func linkName(i int) string { return linkPrefix + strconv.Itoa(i) }

// slotIndex reads the index from a name that linkName or namespace made with
// this prefix before the number.
func slotIndex(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(digits)
	if err != nil || i < 0 || strconv.Itoa(i) != digits {
		return 0, false
	}
	return i, true
}
