package hostnet

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const tcpListening = 10 // a state of the kernel's sockets

// closeStrays ends the host's ends of the TCP connections that guests opened to
// it while there were no rules. To forget those connections is not enough: the
// next packet that the host sends makes each of them known again, as one that
// the host began. Who was dialled has a port that somebody listens on; only the
// gate is dialled by right. A kernel that cannot end sockets is left alone.
func (k *kernel) closeStrays(guests map[netip.Addr]int) error {
	if len(guests) == 0 {
		return nil
	}
	var all []*netlink.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // which has sockets for both
		some, err := dump(func() ([]*netlink.Socket, error) { return k.host.SocketDiagTCP(family) })
		if err != nil && !unsupported(err) {
			return unavailable(err, "the host's connections cannot be listed")
		}
		all = append(all, some...)
	}
	dialled := map[uint16]bool{}
	for _, s := range all {
		if s.State == tcpListening {
			dialled[s.ID.SourcePort] = true
		}
	}
	for _, s := range all {
		host, guest := unmapped(s.ID.Source), unmapped(s.ID.Destination)
		if _, ok := guests[guest]; !ok || !dialled[s.ID.SourcePort] || host == k.own.gate && isGatePort(s.ID.SourcePort) {
			continue
		}
		err := k.host.SocketDestroy(&net.TCPAddr{IP: host.AsSlice(), Port: int(s.ID.SourcePort)},
			&net.TCPAddr{IP: guest.AsSlice(), Port: int(s.ID.DestinationPort)})
		if err != nil && !unsupported(err) {
			return unavailable(err, "a connection of a sandbox to the host cannot be ended")
		}
	}
	return nil
}

func isGatePort(n uint16) bool { return n == gateDNSPort || n == gateProxyPort }

func unmapped(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// unsupported reports a kernel that lacks the call or its module. A socket that
// has ended meanwhile has the same error.
func unsupported(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
