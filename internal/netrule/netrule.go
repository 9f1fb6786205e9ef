// Package netrule is the language of egress rules: what an entry may say, and
// what the entries of one sandbox decide about a connection.
//
// # Entries
//
// An entry is what, what:port or what:first-last. What is an IPv4 address, a
// range of them that begins where its prefix says (203.0.113.0/24, not
// 203.0.113.7/24), a name, or *.name for every name below one at any depth, but
// not that name itself. A name may end with a dot and is matched without regard
// to case. A name in another script is turned into its ASCII form (punycode), the
// form that DNS and TLS carry, so both ways of writing it are the same entry.
//
// Refused, with the field: IPv6 (sandboxes have none), addresses with a scheme or
// path, a star anywhere but before the first dot, names that some programs read as
// an address (1.2.3, 0x7f.1), names below internal (those are sandboxes, which
// joining a network opens), port 0, and more than MaxEntries in all.
//
// # Decisions
//
// An entry matches a connection when its range holds the address or its name
// matches the name, and the port is one of its own. Where the default is to allow,
// what a deny entry matches and no allow entry matches is refused. Where it is
// not, what an allow entry matches and no deny entry matches is allowed. A name
// that is not known matches no name: who enforces a rule must then know that it
// cannot be known, and not only that nobody looked.
package netrule

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Limits of one sandbox's rules.
const (
	MaxEntries = 1000
	MaxMbps    = 100_000
	maxEntry   = 300 // bytes of one entry: the longest name, and ports
)

// Range is an address entry: the ports First to Last of every address in Prefix.
// A Last of 0 is every port.
type Range struct {
	Prefix      netip.Prefix
	First, Last uint16
}

// Rules decides for one sandbox. It does not change once parsed and may be used
// from many goroutines.
type Rules struct {
	byDefault   bool
	allow, deny list
	mbps        int
}

// Parse reads the rules of a sandbox. Its errors name the field.
func Parse(r api.NetworkRules) (*Rules, error) {
	if n := len(r.Allow) + len(r.Deny); n > MaxEntries {
		return nil, invalid("network", "allow and deny have %d entries together and may have %d", n, MaxEntries)
	}
	if r.EgressMbps < 0 || r.EgressMbps > MaxMbps {
		return nil, invalid("network.egress_mbps", "it is %d and must be from 0 to %d", r.EgressMbps, MaxMbps)
	}
	out := &Rules{byDefault: len(r.Allow) == 0, mbps: r.EgressMbps}
	if r.Internet != nil {
		out.byDefault = *r.Internet
	}
	var err error
	if out.allow, err = parseList("network.allow", r.Allow); err != nil {
		return nil, err
	}
	if out.deny, err = parseList("network.deny", r.Deny); err != nil {
		return nil, err
	}
	return out, nil
}

// Decide reports whether a connection is allowed. The name is "" when none is
// known.
func (r *Rules) Decide(name string, to netip.AddrPort) bool {
	if !to.IsValid() {
		return false
	}
	name, _ = Name(name)
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if r.byDefault {
		return !r.deny.matches(name, to) || r.allow.matches(name, to)
	}
	return r.allow.matches(name, to) && !r.deny.matches(name, to)
}

// ByName reports whether some entry is a name, so that connections must be looked
// into to decide.
func (r *Rules) ByName() bool { return r.allow.named() || r.deny.named() }

// DeniesByName reports whether some deny entry is a name, so that a connection to
// an address that is allowed may still be refused for its name.
func (r *Rules) DeniesByName() bool { return r.deny.named() }

// Offline reports that nothing is ever allowed: what is not named is refused, and
// nothing is given or all is taken back.
func (r *Rules) Offline() bool {
	gives := !r.allow.empty()
	if r.byDefault {
		return !gives && r.deny.everything().full()
	}
	return !gives || r.deny.everything().full()
}

// Default reports whether what no entry names is allowed.
func (r *Rules) Default() bool { return r.byDefault }

// Allow lists the address entries that allow.
func (r *Rules) Allow() []Range { return r.allow.addresses }

// Deny lists the address entries that deny.
func (r *Rules) Deny() []Range { return r.deny.addresses }

// Mbps is the cap of outgoing bandwidth, 0 for none.
func (r *Rules) Mbps() int { return r.mbps }

// NameMayBeAsked reports whether a name may be resolved: whether some address and
// port exist for which Decide allows a connection under that name. With an address
// entry that allows, that is nearly every name, since any may resolve to it.
func (r *Rules) NameMayBeAsked(name string) bool {
	name, ok := Name(name)
	if !ok {
		return false
	}
	taken := r.deny.byName(name).union(r.deny.everything())
	given := r.allow.byName(name).union(r.allow.anywhere())
	if r.byDefault {
		return !taken.full() || len(given) > 0
	}
	return !taken.covers(given)
}

// NameIsAllowed reports whether an entry allows this name itself, at some port,
// and does not leave it to the address.
func (r *Rules) NameIsAllowed(name string) bool {
	name, ok := Name(name)
	if !ok {
		return false
	}
	given := r.allow.byName(name)
	if r.byDefault {
		return len(given) > 0
	}
	return !r.deny.byName(name).union(r.deny.everything()).covers(given)
}

// NameAllowedAt reports whether an entry allows this name itself at this port, and
// no deny entry takes that back by name. A range may still take back an address.
func (r *Rules) NameAllowedAt(name string, port uint16) bool {
	name, ok := Name(name)
	return ok && r.allow.matchesName(name, port) && (r.byDefault || !r.deny.matchesName(name, port))
}

// NamesPort reports whether an allow entry matches this name and names this port
// rather than every port: an owner who wrote db.example.com:5432 has said which
// protocol without names of its own it is about.
func (r *Rules) NamesPort(name string, port uint16) bool {
	name, ok := Name(name)
	return ok && r.allow.explicit(name).holds(port)
}

// NamesWithPort lists the names, but not what stands behind a star, that allow
// entries have with this port: those that NamesPort holds for and that can be
// resolved. They are sorted.
func (r *Rules) NamesWithPort(port uint16) []string {
	var out []string
	for name, p := range r.allow.exactPorts {
		if p.holds(port) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Name gives the canonical form of a host name: lower case, without the dot at
// its end. It reports false for what is no name: an address, anything that some
// program might read as one, and bytes that no host name has.
func Name(s string) (string, bool) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return "", false
	}
	lower, label := false, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = 0
			continue
		case 'A' <= c && c <= 'Z':
			lower = true
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if label == 0 {
		return "", false
	}
	if lower {
		s = strings.ToLower(s)
	}
	if numeric(s[strings.LastIndexByte(s, '.')+1:]) {
		return "", false
	}
	return s, true
}

// numeric reports whether the last label of a name makes resolvers read the whole
// as an IPv4 address: digits, or hex behind 0x.
func numeric(label string) bool {
	digits := "0123456789"
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = rest, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

func invalid(field, format string, args ...any) error {
	return api.Errorf(api.CodeInvalidRequest, "%s: "+format, append([]any{field}, args...)...).With("field", field).
		WithHint("An entry is an IPv4 address, a range (203.0.113.0/24), a name (packages.example.com) or *.name, with :port or :first-last behind it.")
}
