package hostnet

import (
	"net/netip"
)

// The gate's ports. The proxy's is above those that the kernel gives out.
const (
	gateDNSPort   = 53
	gateProxyPort = 61080
)

// Gate is where this server's resolver and proxy listen: the host's end of a
// slot that no sandbox gets. The slots of this server, and nobody else's, reach
// it: the resolver over UDP and TCP, and the proxy by connections that Rules
// with ByName have redirected there. It keeps its address as long as a slot of
// the server is there, and mostly longer.
type Gate struct {
	Address            netip.Addr
	DNSPort, ProxyPort uint16
}

// Gate is known after Setup; before, its address is not valid.
func (m *Manager) Gate() Gate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return Gate{}
	}
	return Gate{Address: m.cfg.slot(m.gate).Gateway, DNSPort: gateDNSPort, ProxyPort: gateProxyPort}
}
