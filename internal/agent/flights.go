package agent

import (
	"context"
	"sync"
)

// flights runs work that several callers want at most once at a time by key.
// The work goes on when callers leave; it ends with the context the flights
// were opened with, and close waits for it.
type flights struct {
	mu     sync.Mutex
	ctx    context.Context
	closed bool
	wg     sync.WaitGroup
	flying map[string]*flight
}

type flight struct {
	done chan struct{}
	err  error
}

func newFlights() *flights {
	return &flights{flying: map[string]*flight{}, closed: true}
}

// open lets work begin. Its context is ctx.
func (f *flights) open(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx, f.closed = ctx, false
}

// close refuses new work and waits for what runs.
func (f *flights) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wg.Wait()
}

// enter counts the caller's own work among what close waits for. It reports
// false after close; otherwise the caller calls leave when it is done.
func (f *flights) enter() (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false
	}
	f.wg.Add(1)
	return f.wg.Done, true
}

// run starts work in the background. It reports false, and does nothing, after
// close.
func (f *flights) run(work func(ctx context.Context)) bool {
	leave, ok := f.enter()
	if !ok {
		return false
	}
	go func() {
		defer leave()
		work(f.ctx)
	}()
	return true
}

// do waits for the work of key, starting it if it does not run. It returns the
// work's error, or ctx's when that ends first.
func (f *flights) do(ctx context.Context, key string, work func(ctx context.Context) error) error {
	fl, err := f.start(key, work)
	if err != nil {
		return err
	}
	select {
	case <-fl.done:
		return fl.err
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (f *flights) start(key string, work func(ctx context.Context) error) (*flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flying[key]; fl != nil {
		return fl, nil
	}
	if f.closed {
		return nil, errStopping()
	}
	fl := &flight{done: make(chan struct{})}
	f.flying[key] = fl
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		fl.err = work(f.ctx)
		f.mu.Lock()
		delete(f.flying, key)
		f.mu.Unlock()
		close(fl.done)
	}()
	return fl, nil
}
