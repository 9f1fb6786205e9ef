package edge

import (
	"net/netip"

	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/netrule"
)

// peer is an admitted sandbox. It is replaced, never changed.
type peer struct {
	id    string
	rules *netrule.Rules
	links []host.Link
}

// names are those under which the members of a group find a sandbox.
func (p peer) names(l host.Link) []string {
	if l.Name == "" {
		return []string{p.id}
	}
	return []string{p.id, l.Name}
}

// put makes p the sandbox at an address, and gives the one before. One without
// an id is none.
func (e *Edge) put(at netip.Addr, p peer) (before peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.peers[at]
	for _, l := range before.links {
		e.unname(before, l, at)
	}
	delete(e.peers, at)
	if p.id == "" {
		if before.id != "" {
			e.former[at] = before.id // one for each slot at most
		}
		return before
	}
	delete(e.former, at)
	e.peers[at] = p
	for _, l := range p.links {
		if e.groups[l.Group] == nil {
			e.groups[l.Group] = map[string]netip.Addr{}
		}
		for _, name := range p.names(l) {
			e.groups[l.Group][name] = at
		}
	}
	return before
}

// unname takes the names of a sandbox out of a group, but not those that stand
// for it at another address by now.
func (e *Edge) unname(p peer, l host.Link, at netip.Addr) {
	group := e.groups[l.Group]
	for _, name := range p.names(l) {
		if group[name] == at {
			delete(group, name)
		}
	}
	if len(group) == 0 {
		delete(e.groups, l.Group)
	}
}

func (e *Edge) peerAt(at netip.Addr) (peer, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	p, ok := e.peers[at]
	return p, ok
}

// owner is the sandbox at an address, or the last one that was there.
func (e *Edge) owner(at netip.Addr) (id string, ok bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if p, ok := e.peers[at]; ok {
		return p.id, true
	}
	id, ok = e.former[at]
	return id, ok
}

// peer tells the resolver and the proxy whom they serve.
func (e *Edge) peer(at netip.Addr) (egress.Peer, bool) {
	p, ok := e.peerAt(at)
	if !ok {
		return egress.Peer{}, false
	}
	return egress.Peer{ID: p.id, Rules: p.rules, Links: func(name string) (netip.Addr, bool) {
		return e.linked(p, name)
	}}, true
}

// linked finds the address of <name>.internal for a sandbox; name is in lower
// case.
func (e *Edge) linked(p peer, name string) (netip.Addr, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, l := range p.links {
		if at, ok := e.groups[l.Group][name]; ok {
			return at, true
		}
	}
	return netip.Addr{}, false
}
