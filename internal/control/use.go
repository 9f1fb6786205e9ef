package control

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// Use says that a request about a sandbox has begun; done, to be called once,
// says that it ended. A sandbox in use does not go to sleep by itself.
func (s *Service) Use(id string) (done func()) {
	s.uses.change(id, 1)
	return func() { s.uses.change(id, -1) }
}

// UseBy is Use for who has not been found to be the owner yet: of a sandbox that
// is another's, or is not, nothing is counted, or any caller could keep any
// sandbox awake. It wakes nobody and refuses nothing: that is for what is asked
// for next. An owner who cannot be looked up now is taken for one, so that a
// stumbling database cuts nobody off.
func (s *Service) UseBy(ctx context.Context, who auth.Identity, id string) (done func()) {
	// A caller who left says nothing about the database.
	if _, err := s.find(ctx, who, id); err != nil && (api.CodeOf(err) == api.CodeSandboxNotFound || ctx.Err() != nil) {
		return func() {}
	}
	return s.Use(id)
}

// Touch says that a request under way, such as an open terminal, moved a byte:
// with idle.ignore_streams only that counts of it.
func (s *Service) Touch(id string) { s.uses.change(id, 0) }

// uses count the requests under way of each sandbox. They are kept in parts, so
// that requests to different sandboxes do not wait for each other. An id is
// remembered while it is in use or watched; others come from anywhere.
type uses struct {
	seed  maphash.Seed
	parts [64]usePart
}

type usePart struct {
	mu   sync.Mutex
	byID map[string]use
	_    [48]byte // so that two parts do not share a cache line
}

type use struct {
	underWay int
	last     time.Time // of a begin, an end or a byte
	watched  bool
}

// part locks the part that has an id.
func (u *uses) part(id string) *usePart {
	p := &u.parts[maphash.String(u.seed, id)%uint64(len(u.parts))]
	p.mu.Lock()
	if p.byID == nil {
		p.byID = make(map[string]use)
	}
	return p
}

// change counts requests that begin or end.
func (u *uses) change(id string, by int) {
	at := time.Now()
	p := u.part(id)
	defer p.mu.Unlock()
	k := p.byID[id]
	k.underWay += by
	k.last = at
	p.put(id, k)
}

// watch remembers the use of a sandbox from now on, or no longer.
func (u *uses) watch(id string, on bool) {
	p := u.part(id)
	defer p.mu.Unlock()
	k := p.byID[id]
	k.watched = on
	p.put(id, k)
}

func (p *usePart) put(id string, k use) {
	if k.underWay == 0 && !k.watched {
		delete(p.byID, id)
	} else {
		p.byID[id] = k
	}
}

// get gives how many requests are under way and when one was used last; the zero
// time when nothing is known.
func (u *uses) get(id string) (underWay int, last time.Time) {
	p := u.part(id)
	defer p.mu.Unlock()
	k := p.byID[id]
	return k.underWay, k.last
}
