package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

const (
	forkOutput = "fork to first output in the child"
	treeSize   = 10
)

// forkOnce forks a parent and waits for the child's first output, in which the
// parent's process must be there. The caller deletes the child, which may be nil.
func forkOnce(ctx context.Context, parent *holder, call, total *row) *client.Sandbox {
	from := time.Now()
	child, err := fork(ctx, parent.Sandbox)
	if err != nil {
		total.fail(err)
		return nil
	}
	if forked, ok := total.answered(ctx, child, parent.alive(), from); ok && call != nil {
		call.took(forked)
		call.boot(child.BootSteps)
	}
	return child
}

func openFork(ctx context.Context, t *target) (*session, error) {
	parent, err := t.hold(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.options.Count, warm: 2}
	call, total := s.row("fork", "ms"), s.row(forkOutput, "ms").aim(45, 90)
	s.round = func(ctx context.Context) error {
		return gone(ctx, forkOnce(ctx, parent, call, total))
	}
	return s, nil
}

// openForkPause measures from inside how long a parent stands still: its process
// looks at the clock twice a millisecond. The same without a fork says how much
// of that is the machine's scheduling.
func openForkPause(ctx context.Context, t *target) (*session, error) {
	s := &session{rounds: t.some(15), warm: 1}
	small, err := t.watched(ctx, s, 5, 15)
	if err != nil {
		return nil, err
	}
	large, err := t.watched(ctx, s, 64, 40)
	if err != nil {
		return nil, err
	}
	s.round = func(ctx context.Context) error {
		if err := small(ctx); err != nil {
			return err
		}
		return large(ctx)
	}
	return s, nil
}

// watched prepares a parent that watches the clock and gives the function that
// forks it once.
func (t *target) watched(ctx context.Context, s *session, megabytes int, aim float64) (func(context.Context) error, error) {
	g := new(gaps)
	parent, err := t.hold(ctx, megabytes, g)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d MB changed", megabytes)
	total := s.row(name+": "+forkOutput, "ms")
	quiet := s.row(name+": longest gap without a fork", "ms")
	longest := s.row(name+": longest gap around the fork", "ms").aim(aim, 0)
	return func(ctx context.Context) error {
		if err := parent.change(ctx); err != nil {
			return err
		}
		if !pause(ctx, rest) { // the change itself is a gap
			return ctx.Err()
		}
		g.since()
		if !pause(ctx, 2*rest) {
			return ctx.Err()
		}
		quiet.took(g.since())
		failed := total.errors
		child := forkOnce(ctx, parent, nil, total)
		if !pause(ctx, rest) { // its word of a gap comes over the network
			return ctx.Err()
		}
		if total.errors == failed {
			longest.took(g.since())
			longest.boot(child.BootSteps)
		}
		return gone(ctx, child)
	}, nil
}

func openForkTree(ctx context.Context, t *target) (*session, error) {
	parent, err := t.hold(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.some(10), warm: 1}
	call, all := s.row(fmt.Sprintf("fork of %d children", treeSize), "ms"), s.row("until all answer", "ms").aim(350, 0)
	s.round = func(ctx context.Context) error {
		children, err := t.tree(ctx, parent, call, all)
		if err != nil {
			all.fail(err)
		}
		if err := deleteAll(ctx, children); err != nil {
			return err
		}
		return gone(ctx, nil)
	}
	return s, nil
}

// tree forks treeSize children and waits until each of them has answered.
func (t *target) tree(ctx context.Context, parent *holder, call, all *row) ([]*client.Sandbox, error) {
	making, cancel := whole(ctx)
	defer cancel()
	from := time.Now()
	tree, err := parent.ForkTree(making, treeSize, api.Fork{})
	if err != nil {
		return nil, err
	}
	forked := time.Since(from)
	failed := make([]error, len(tree.Children))
	var wg sync.WaitGroup
	for i, child := range tree.Children {
		wg.Go(func() { failed[i] = answers(ctx, child, parent.alive()) })
	}
	wg.Wait()
	took := time.Since(from)
	for i, err := range failed {
		if err != nil {
			return tree.Children, err
		}
		all.boot(tree.Children[i].BootSteps)
	}
	call.took(forked)
	all.took(took)
	return tree.Children, nil
}
