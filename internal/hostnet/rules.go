package hostnet

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"slices"

	"github.com/pandastack/pandastack/api"
)

// Range is a set of IPv4 addresses and ports. Last 0 means every port, and
// every protocol; else the ports are those of TCP and UDP.
type Range struct {
	Prefix      netip.Prefix
	First, Last uint16
}

// Rules is what one slot may reach, beyond what no slot ever may (the floor).
// The zero value is nothing; DefaultRules is the internet. DNS to the gate is
// let through under all of them: what a name means to a sandbox is for the
// resolver there to say.
type Rules struct {
	Default bool // what neither list names is allowed
	// With Default, Deny takes away and Allow gives back of it; without, Allow
	// gives and Deny takes back.
	Allow, Deny []Range
	// ByName hands every new TCP connection to the gate's proxy, which knows
	// names and decides also by Default, Allow and Deny. Every other packet but
	// DNS to the gate is refused.
	ByName  bool
	Offline bool     // nothing at all leaves but to Groups and DNS to the gate
	Mbps    int      // cap of what the guest sends, in 10^6 bits a second; 0 is none
	Groups  []string // slots of this server that share one reach each other at any port
}

// DefaultRules are those of a slot that Apply was never called for.
func DefaultRules() Rules { return Rules{Default: true} }

// maxRanges bounds a list; the interface of the platform allows fewer.
const maxRanges = 4096

// maxMbps is what a burst and a queue in the kernel's 32-bit counters of bytes
// still hold.
const maxMbps = 100_000

// checked gives equal rules one form, or says what is wrong.
func (r Rules) checked() (Rules, error) {
	for _, list := range [][]Range{r.Allow, r.Deny} {
		if len(list) > maxRanges {
			return r, api.Errorf(api.CodeInvalidRequest, "%d ranges of a network rule are more than %d", len(list), maxRanges)
		}
		for _, x := range list {
			if !x.Prefix.IsValid() || !x.Prefix.Addr().Is4() || x.First > x.Last {
				return r, api.Errorf(api.CodeInvalidRequest, "%s ports %d to %d is not a range of IPv4 addresses and ports", x.Prefix, x.First, x.Last)
			}
		}
	}
	if r.Mbps < 0 || r.Mbps > maxMbps {
		return r, api.Errorf(api.CodeInvalidRequest, "a bandwidth of %d Mbit/s is not between 0 and %d", r.Mbps, maxMbps)
	}
	r.Allow, r.Deny = slices.Clone(r.Allow), slices.Clone(r.Deny)
	r.Groups = slices.Compact(slices.Sorted(slices.Values(r.Groups)))
	return r, nil
}

func (r Rules) equal(q Rules) bool {
	return r.Default == q.Default && r.ByName == q.ByName && r.Offline == q.Offline && r.Mbps == q.Mbps &&
		slices.Equal(r.Allow, q.Allow) && slices.Equal(r.Deny, q.Deny) && slices.Equal(r.Groups, q.Groups)
}

// allows is the verdict of the lists on a packet to a port; protocols without
// ports have port 0.
func (r Rules) allows(a netip.Addr, port uint16) bool {
	names := func(list []Range) bool {
		return slices.ContainsFunc(list, func(x Range) bool {
			return x.Prefix.Contains(a) && (x.Last == 0 || port != 0 && x.First <= port && port <= x.Last)
		})
	}
	if r.Default {
		return names(r.Allow) || !names(r.Deny)
	}
	return !names(r.Deny) && names(r.Allow)
}

// groupID tells groups of all servers of a machine apart.
type groupID [16]byte

func (c Config) groupIDs(names []string) []groupID {
	var out []groupID
	for _, name := range names {
		sum := sha256.Sum256([]byte(c.Owner + "\x00" + name))
		out = append(out, groupID(sum[:16]))
	}
	return out
}

// Apply puts rules in force for a slot, in one moment for all that a packet may
// meet, and cuts the connections that they deny. The first call for a slot that
// Take gave comes before its guest runs, since it looks for none. Rules that are
// in force already cost no call of the kernel; so do the default rules of a slot
// that Take has just given. When it fails, what was in force still is. It fails
// with host.kernel_feature_missing when this host cannot enforce them.
func (m *Manager) Apply(ctx context.Context, s Slot, r Rules) error {
	if err := ctx.Err(); err != nil {
		return ended(err)
	}
	r, err := r.checked()
	if err != nil {
		return err
	}
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	m.mu.Lock()
	inUse, fresh := m.inUse[s.Index], m.fresh[s.Index]
	delete(m.fresh, s.Index)
	m.mu.Unlock()
	if !inUse {
		return api.Errorf(api.CodeNetworkUnavailable, "network slot %d is not in use", s.Index)
	}
	return m.kernel.apply(ctx, s.Index, r, fresh)
}
