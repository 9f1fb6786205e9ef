package control

import (
	"context"
	"sync"

	"github.com/pandastack/pandastack/api"
)

// locks makes everything that changes one sandbox take turns. It holds an entry
// only while someone holds or waits for it.
type locks struct {
	mu   sync.Mutex
	byID map[string]*lock
}

type lock struct {
	turn  chan struct{} // holds one token while taken
	users int
}

// take waits for the turn of a sandbox. The caller must call release once.
func (l *locks) take(ctx context.Context, id string) (release func(), err error) {
	l.mu.Lock()
	if l.byID == nil {
		l.byID = make(map[string]*lock)
	}
	k := l.byID[id]
	if k == nil {
		k = &lock{turn: make(chan struct{}, 1)}
		l.byID[id] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn; l.leave(id, k) }, nil
	case <-ctx.Done():
		l.leave(id, k)
		return nil, api.Wrap(api.CodeCanceled, ctx.Err(), "the request was given up while another change of the sandbox was under way")
	}
}

// tryTake takes the turn of a sandbox if nobody has it.
func (l *locks) tryTake(id string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[id] != nil {
		return nil, false
	}
	if l.byID == nil {
		l.byID = make(map[string]*lock)
	}
	k := &lock{turn: make(chan struct{}, 1), users: 1}
	k.turn <- struct{}{}
	l.byID[id] = k
	return func() { <-k.turn; l.leave(id, k) }, true
}

func (l *locks) leave(id string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.byID, id)
	}
}
