package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// signals passes SIGINT and SIGTERM to whoever handles them now.
type signals struct {
	ch   chan os.Signal
	done chan struct{}
	wait sync.WaitGroup

	mu     sync.Mutex
	handle func(os.Signal)
}

// sameInterrupt is how long after the end of the caller's context a signal may
// come that is what ended it.
const sameInterrupt = 100 * time.Millisecond

// catchSignals begins to catch signals. The first cancels; after it they have
// their usual effect again, so that a second ends a program that hangs. The end
// of ctx is taken for a signal, unless one was what ended it.
func catchSignals(ctx context.Context, cancel context.CancelFunc) *signals {
	s := &signals{ch: make(chan os.Signal, 4), done: make(chan struct{})}
	s.handle = func(os.Signal) {
		signal.Stop(s.ch)
		cancel()
	}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	s.wait.Go(func() { s.pass(ctx.Done()) })
	return s
}

func (s *signals) pass(ended <-chan struct{}) {
	var settled <-chan time.Time
	seen := false
	for {
		var sig os.Signal
		select {
		case <-s.done:
			return
		case <-ended:
			ended, settled = nil, time.After(sameInterrupt)
			continue
		case <-settled:
			settled = nil
			if seen {
				continue
			}
			sig = syscall.SIGTERM
		case sig = <-s.ch:
		}
		seen = true
		s.mu.Lock()
		handle := s.handle
		s.mu.Unlock()
		handle(sig)
	}
}

// take makes another function the handler until restore is called.
func (s *signals) take(handle func(os.Signal)) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.handle
	s.handle = handle
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handle = before
	}
}

func (s *signals) stop() {
	signal.Stop(s.ch)
	close(s.done)
	s.wait.Wait()
}
