package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/pandastack/pandastack/internal/host"
)

// changeQueue is how many changes a subscriber may be behind. A subscriber
// that is further behind loses the newest, which its next List shows.
const changeQueue = 1024

// changes hands every change to every subscriber and never waits for one.
type changes struct {
	log  *slog.Logger
	mu   sync.Mutex
	subs map[chan host.Change]struct{}
}

func newChanges(log *slog.Logger) *changes {
	return &changes{log: log, subs: map[chan host.Change]struct{}{}}
}

// subscribe gives a channel of the changes from now on; it is closed when ctx
// or stop ends.
func (c *changes) subscribe(ctx context.Context, stop <-chan struct{}) <-chan host.Change {
	ch := make(chan host.Change, changeQueue)
	c.mu.Lock()
	c.subs[ch] = struct{}{}
	c.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
		case <-stop:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, ch)
		close(ch)
	}()
	return ch
}

func (c *changes) emit(change host.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.subs {
		if change.Denied != nil && len(ch) > changeQueue/2 {
			continue // what is in the log anyway does not push out the death of a sandbox
		}
		select {
		case ch <- change:
		default:
			c.log.Warn("a subscriber of sandbox changes is too far behind", "sandbox", change.SandboxID)
		}
	}
}
