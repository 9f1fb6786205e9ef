//go:build !linux

package hostnet

import (
	"net"
	"net/netip"
)

// OriginalDestination is where a connection was going before it was redirected
// to the gate.
func OriginalDestination(*net.TCPConn) (netip.AddrPort, error) {
	return netip.AddrPort{}, errNotLinux()
}
