package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// undoTimeout bounds all undo work of one create or delete. What does not fit
// is swept at the next start.
const undoTimeout = 30 * time.Second

// undoStack remembers how to take back what was done. The zero value is empty.
type undoStack struct {
	entries []undoEntry
}

type undoEntry struct {
	name string
	undo func(context.Context) error
}

// push adds the reverse of something that has just been done.
func (u *undoStack) push(name string, undo func(context.Context) error) {
	u.entries = append(u.entries, undoEntry{name, undo})
}

// run takes everything back, last first, and goes on past failures. It is not
// cancelled with ctx, because a client that has left must not leave anything
// behind. The errors are joined; nil means that nothing is left.
func (u *undoStack) run(ctx context.Context) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	var errs []error
	for len(u.entries) > 0 {
		last := len(u.entries) - 1
		e := u.entries[last]
		u.entries = u.entries[:last]
		if err := e.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", e.name, err))
		}
	}
	return errors.Join(errs...)
}

// detached gives a context with the values of ctx that outlives it for as long
// as undoing may take.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}
