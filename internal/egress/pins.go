package egress

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// How long a pin holds: as long as the answer says, at most maxTTL, and some more
// for programs that connect with an answer that has just run out.
const (
	maxTTL   = time.Hour
	pinGrace = 30 * time.Second
)

// pins are the addresses that the resolver gave one sandbox for names. There are
// at most maxPins: the sandbox that makes more loses some of its own.
type pins struct {
	mu        sync.Mutex
	count     int
	byAddress map[netip.Addr]map[string]time.Time // when each name's pin runs out
	asked     map[string]time.Time                // when each name was last resolved
}

// add remembers that a name, in its canonical form, resolved to addresses.
func (p *pins) add(name string, addresses []netip.Addr, ttl time.Duration) {
	until := time.Now().Add(min(ttl, maxTTL) + pinGrace)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count+len(addresses) > maxPins {
		p.makeRoom(len(addresses))
	}
	if p.byAddress == nil {
		p.byAddress, p.asked = map[netip.Addr]map[string]time.Time{}, map[string]time.Time{}
	}
	if len(p.asked) >= maxPins {
		clear(p.asked)
	}
	p.asked[name] = time.Now()
	for _, a := range addresses {
		names := p.byAddress[a]
		if names == nil {
			names = map[string]time.Time{}
			p.byAddress[a] = names
		}
		old, ok := names[name]
		if !ok {
			p.count++
		}
		if old.Before(until) {
			names[name] = until
		}
	}
}

// makeRoom drops pins that have run out and, where that is not enough, a quarter
// of the rest.
func (p *pins) makeRoom(n int) {
	now := time.Now()
	p.drop(func(until time.Time) bool { return until.Before(now) })
	if p.count+n > maxPins {
		target := maxPins * 3 / 4
		p.drop(func(time.Time) bool { return p.count > target })
	}
}

func (p *pins) drop(gone func(until time.Time) bool) {
	for a, names := range p.byAddress {
		for name, until := range names {
			if gone(until) {
				delete(names, name)
				p.count--
			}
		}
		if len(names) == 0 {
			delete(p.byAddress, a)
		}
	}
}

// has reports whether a name resolved to an address.
func (p *pins) has(name string, a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.byAddress[a][name]
	return ok && time.Now().Before(until)
}

// fresh reports whether a name was resolved a moment ago, so that asking again
// would bring nothing new.
func (p *pins) fresh(name string) bool {
	const moment = 5 * time.Second
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.asked[name]) < moment
}

// names lists the names that resolved to an address, sorted.
func (p *pins) names(a netip.Addr) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var out []string
	for name, until := range p.byAddress[a] {
		if now.Before(until) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// name is the first of names, or "".
func (p *pins) name(a netip.Addr) string {
	if names := p.names(a); len(names) > 0 {
		return names[0]
	}
	return ""
}

func (p *pins) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byAddress, p.asked, p.count = nil, nil, 0
}
