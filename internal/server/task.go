package server

import (
	"context"
	"errors"
)

// task is a part that runs.
type task struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
	told   bool  // err has been returned already
}

// start runs a part until stop. It does not end with ctx: parts end in order.
// One that ends by itself is sent to failed.
func (s *server) start(ctx context.Context, name string, run func(context.Context) error) *task {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &task{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		t.err = run(ctx)
		close(t.done)
		s.failed <- t // has room for every part
	}()
	return t
}

// stop ends a part and waits for it. A part that was never started has ended.
func (t *task) stop() error {
	if t == nil {
		return nil
	}
	t.cancel()
	<-t.done
	if t.told || errors.Is(t.err, context.Canceled) {
		return nil
	}
	return t.err
}
