package hostnet

import (
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Where the host's resolvers are written. When the first file names only a
// stub on the host itself, which sandboxes cannot reach, the second has the
// resolvers behind it.
var resolverFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Nameservers are what sandboxes ask for names: the gate, where this server
// answers, and behind it the host's own resolvers that a sandbox can reach (IPv4,
// and not an address of the host), so that names do not end with the server. Rules
// by name or without a network leave only the gate. The list follows changes of
// the host's configuration.
func (m *Manager) Nameservers() []netip.Addr {
	list := nameservers(m.kernel.isLocal)
	if gate := m.Gate(); gate.Address.IsValid() {
		list = slices.Insert(list, 0, gate.Address)
	}
	return list
}

// HostResolvers are those that the host's own programs use, whatever and
// wherever they are.
func HostResolvers() []netip.Addr { return readResolvers(resolverFiles[0]) }

func nameservers(isLocal func(netip.Addr) bool) []netip.Addr {
	var out []netip.Addr
	for _, path := range resolverFiles {
		for _, a := range readResolvers(path) {
			if a.Is4() && !a.IsLoopback() && !a.IsUnspecified() && !isLocal(a) && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// readResolvers reads a resolv.conf. A file that is missing or unreadable has
// no resolvers: a host without DNS is not an error.
func readResolvers(path string) []netip.Addr {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}
