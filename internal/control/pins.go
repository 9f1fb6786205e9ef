package control

import (
	"sync"

	"github.com/pandastack/pandastack/api"
)

// pins count who uses a snapshot right now: one that makes it or makes
// something from it. A snapshot is removed by one who has claimed it, and nobody
// uses it from then on. A row in the state creating that nobody uses was left by
// a process that died.
type pins struct {
	mu   sync.Mutex
	byID map[string]int // users, or claimed
}

const claimed = -1

// take begins a use, which release ends.
func (p *pins) take(id string) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID[id] == claimed {
		return nil, noSnapshot(id)
	}
	if p.byID == nil {
		p.byID = make(map[string]int)
	}
	p.byID[id]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.byID[id]--; p.byID[id] == 0 {
			delete(p.byID, id)
		}
	}, nil
}

// claim begins a removal, which release ends.
func (p *pins) claim(id string) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.byID[id]; {
	case n == claimed:
		return nil, noSnapshot(id)
	case n > 0:
		return nil, api.Errorf(api.CodeSnapshotInUse, "snapshot %s is in use", id).With("snapshot_id", id)
	}
	if p.byID == nil {
		p.byID = make(map[string]int)
	}
	p.byID[id] = claimed
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.byID, id)
	}, nil
}

// used reports whether someone uses or removes a snapshot.
func (p *pins) used(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id] != 0
}
