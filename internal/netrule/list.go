package netrule

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// span is the ports first to last, both included.
type span struct{ first, last uint16 }

var everyPort = span{0, 65535}

// ports is a set of ports: spans in order that neither overlap nor touch.
type ports []span

// merged makes a set of any spans.
func merged(s []span) ports {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var out ports
	for _, x := range s {
		if n := len(out); n > 0 && int(x.first) <= int(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, x.last)
			continue
		}
		out = append(out, x)
	}
	return out
}

func (p ports) union(q ports) ports {
	switch {
	case len(p) == 0:
		return q
	case len(q) == 0:
		return p
	}
	return merged(slices.Concat(p, q))
}

func (p ports) holds(port uint16) bool {
	i, exact := slices.BinarySearchFunc(p, port, func(s span, port uint16) int { return cmp.Compare(s.first, port) })
	return exact || i > 0 && p[i-1].last >= port
}

// covers reports whether every port of q is in p.
func (p ports) covers(q ports) bool {
	for _, s := range q {
		if !slices.ContainsFunc(p, func(t span) bool { return t.first <= s.first && s.last <= t.last }) {
			return false
		}
	}
	return true
}

// full reports whether every port that a connection can have is in p: all but 0.
func (p ports) full() bool { return p.covers(ports{{1, 65535}}) }

// list is the entries of one list, arranged so that a decision costs a few look-ups
// however many there are: one per length of prefix, and one per label of a name.
type list struct {
	addresses []Range // as they were written

	lengths    uint64                 // bit n is set where some prefix has n bits
	prefixes   map[netip.Prefix]ports // by masked prefix
	all        ports                  // what prefixes have in common: ports of any of them
	exact      map[string]ports       // by name
	below      map[string]ports       // by the name that *. stands before
	exactPorts map[string]ports       // of exact, the ports that an entry names
	belowPorts map[string]ports       // of below, the same
}

func (l *list) addRange(p netip.Prefix, s span) {
	r := Range{Prefix: p}
	if s != everyPort {
		r.First, r.Last = s.first, s.last
	}
	l.addresses = append(l.addresses, r)
	l.lengths |= 1 << p.Bits()
	put(&l.prefixes, p, s)
	l.all = append(l.all, s)
}

func (l *list) addName(name string, below bool, s span) {
	set, explicit := &l.exact, &l.exactPorts
	if below {
		set, explicit = &l.below, &l.belowPorts
	}
	put(set, name, s)
	if s != everyPort {
		put(explicit, name, s)
	}
}

func put[K comparable](m *map[K]ports, k K, s span) {
	if *m == nil {
		*m = map[K]ports{}
	}
	(*m)[k] = append((*m)[k], s)
}

// seal brings the sets that add has filled into order.
func (l *list) seal() {
	l.all = merged(l.all)
	for k, s := range l.prefixes {
		l.prefixes[k] = merged(s)
	}
	for _, m := range []map[string]ports{l.exact, l.below, l.exactPorts, l.belowPorts} {
		for k, s := range m {
			m[k] = merged(s)
		}
	}
}

func (l *list) named() bool { return len(l.exact)+len(l.below) > 0 }

func (l *list) empty() bool { return !l.named() && len(l.prefixes) == 0 }

// everything is the ports that entries name for every address.
func (l *list) everything() ports { return l.prefixes[netip.PrefixFrom(netip.IPv4Unspecified(), 0)] }

// anywhere is the ports that entries name for some address.
func (l *list) anywhere() ports { return l.all }

// matches reports whether an entry matches. The name is canonical, or "".
func (l *list) matches(name string, to netip.AddrPort) bool {
	return l.holds(to) || l.matchesName(name, to.Port())
}

func (l *list) holds(to netip.AddrPort) bool {
	if !to.Addr().Is4() {
		return false
	}
	for left := l.lengths; left != 0; left &= left - 1 {
		p, err := to.Addr().Prefix(bits.TrailingZeros64(left))
		if err == nil && l.prefixes[p].holds(to.Port()) {
			return true
		}
	}
	return false
}

func (l *list) matchesName(name string, port uint16) bool {
	if name == "" {
		return false
	}
	if l.exact[name].holds(port) {
		return true
	}
	for parent := range parents(name, len(l.below)) {
		if l.below[parent].holds(port) {
			return true
		}
	}
	return false
}

// byName is the ports that entries name for a name.
func (l *list) byName(name string) ports { return union(name, l.exact, l.below) }

// explicit is byName of those entries only that name ports.
func (l *list) explicit(name string) ports { return union(name, l.exactPorts, l.belowPorts) }

func union(name string, exact, below map[string]ports) ports {
	p := exact[name]
	for parent := range parents(name, len(below)) {
		p = p.union(below[parent])
	}
	return p
}

// parents yields the names above a name, nearest first, unless there are no
// entries to look them up in.
func parents(name string, entries int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for entries > 0 {
			_, rest, ok := strings.Cut(name, ".")
			if !ok || !yield(rest) {
				return
			}
			name = rest
		}
	}
}
