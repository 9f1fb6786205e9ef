package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// watchRetry is the pause after a Wait that failed for another reason than the
// machine's end.
const watchRetry = time.Second

// watch waits in the background until the machine needs its snapshot no more, of
// which it tells loaded, then for the machine's end.
func (a *Agent) watch(s *sandbox, m driver.Machine, loaded func(error)) {
	a.flights.run(func(ctx context.Context) {
		loaded(a.awaitLoaded(ctx, m))
		exit, ended := a.waitEnd(ctx, s.id, m)
		if !ended {
			return
		}
		ctx, cancel := detached(ctx)
		defer cancel()
		a.died(ctx, s, m, exit.Reason)
	})
}

// awaitLoaded returns when the machine is loaded or has ended. A stopping agent
// gives it time: what is not loaded then ends with the agent.
func (a *Agent) awaitLoaded(ctx context.Context, m driver.Machine) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(undoTimeout):
			cancel()
		case <-inner.Done():
		}
	})
	defer stop()
	return m.Loaded(inner)
}

// waitEnd returns when the machine has ended, or false when ctx has.
func (a *Agent) waitEnd(ctx context.Context, id string, m driver.Machine) (driver.Exit, bool) {
	for {
		exit, err := m.Wait(ctx)
		if ctx.Err() != nil {
			return exit, false
		}
		if err == nil || api.CodeOf(err) == api.CodeSandboxDied {
			return exit, true
		}
		a.log.Warn("cannot wait for a machine", "sandbox", id, "error", err)
		select {
		case <-time.After(watchRetry):
		case <-ctx.Done():
			return exit, false
		}
	}
}

// died marks a sandbox whose machine ended by itself as failed, tells everyone
// and frees what it held. Its record stays until it is deleted. One whose machine
// had not been loaded yet is asleep again instead. When something else ended the
// machine there is nothing to do.
func (a *Agent) died(ctx context.Context, s *sandbox, m driver.Machine, reason string) {
	if err := s.take(ctx); err != nil {
		return
	}
	defer s.give()
	s.mu.Lock()
	current := s.machine == m && s.published
	s.mu.Unlock()
	if !current {
		return
	}
	if reason == "" {
		reason = "its machine ended"
	}
	failure := api.Errorf(api.CodeSandboxDied, "sandbox %s stopped by itself: %s", s.id, reason)
	if s.record().Sleep != "" {
		a.fellAsleep(ctx, s, failure)
		return
	}
	rec := s.update(func(r *record) {
		r.Sandbox.State = host.StateFailed
		r.Sandbox.Error = failure
	})
	a.log.Warn("sandbox died", "sandbox", s.id, "driver", rec.Sandbox.Driver, "reason", reason)
	if err := a.journal.save(rec); err != nil {
		a.log.Error("cannot record that a sandbox died", "sandbox", s.id, "error", err)
	}
	a.changes.emit(host.Change{SandboxID: s.id, State: host.StateFailed, Error: failure})
	a.freeFailed(ctx, s)
}

// freeFailed releases what a failed sandbox held and records that. What could
// not be freed now is freed by its delete.
func (a *Agent) freeFailed(ctx context.Context, s *sandbox) {
	if err := a.release(ctx, s); err != nil {
		a.log.Error("cannot free what a failed sandbox held", "sandbox", s.id, "error", err)
	}
	if err := a.journal.save(s.record()); err != nil {
		a.log.Error("cannot record what a failed sandbox holds", "sandbox", s.id, "error", err)
	}
}
