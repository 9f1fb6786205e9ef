package hostnet

import (
	"net/netip"
	"slices"
	"sync"
)

// deniedPrefixes are what no sandbox reaches, besides the host and other
// sandboxes: everything that is not the public internet and might be somebody's
// inside.
var deniedPrefixes = sync.OnceValue(func() []netip.Prefix {
	var out []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/8",      // this network
		"10.0.0.0/8",     // private
		"100.64.0.0/10",  // carrier
		"127.0.0.0/8",    // loopback
		"169.254.0.0/16", // link-local, cloud metadata
		"172.16.0.0/12",  // private
		"192.0.0.0/24",   // protocol assignments
		"192.168.0.0/16", // private
		"198.18.0.0/15",  // benchmarks
		"224.0.0.0/3",    // multicast, reserved, broadcast
	} {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
})

func isDenied(a netip.Addr) bool { return within(deniedPrefixes(), a) }

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Allowed is the floor: whether any sandbox of this server may reach an
// address. It may not when the address is not public IPv4, unless the operator
// opened it, and never when it is the host's or a sandbox's. An address that
// the host has no route to is not allowed.
func (m *Manager) Allowed(a netip.Addr) bool {
	m.mu.Lock()
	cfg, open := m.cfg, m.open
	m.mu.Unlock()
	a = a.Unmap()
	if !open || !a.Is4() || cfg.Prefix.Contains(a) || isDenied(a) && !within(cfg.Pass, a) {
		return false
	}
	return m.kernel.leadsOut(a)
}
