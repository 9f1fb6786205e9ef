package control

import (
	"context"
	"errors"
	"sync"
)

// errDeleted is why a create is given up whose sandbox was deleted meanwhile.
var errDeleted = errors.New("deleted while it was being created")

// creations are the creates under way in this process. A row in the state
// creating that is not among them was left by a process that died.
type creations struct {
	mu   sync.Mutex
	byID map[string]context.CancelCauseFunc
}

// begin notes a create, of one sandbox or of several together, and gives the
// context it runs under.
func (c *creations) begin(ctx context.Context, ids ...string) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = make(map[string]context.CancelCauseFunc)
	}
	for _, id := range ids {
		c.byID[id] = cancel
	}
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, id := range ids {
			delete(c.byID, id)
		}
		cancel(nil)
	}
}

func (c *creations) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id] != nil
}

// giveUp cancels a create that is under way.
func (c *creations) giveUp(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel := c.byID[id]
	if cancel != nil {
		cancel(errDeleted)
	}
	return cancel != nil
}
