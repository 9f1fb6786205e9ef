package agent

import (
	"context"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// sleepPrefix begins the ids of the snapshots that hibernated sandboxes are. It
// names the host: several may share one store, and each sweeps what is its own.
func (a *Agent) sleepPrefix() string { return "sleep-" + a.id + "-" }

func (a *Agent) newSleepID() string { return a.sleepPrefix() + api.NewID() }

// dropSleep removes the snapshot of a sandbox that sleeps no more. A snapshot
// that someone asked for stays.
func (a *Agent) dropSleep(ctx context.Context, id string) error {
	if a.cfg.Kept == nil || !strings.HasPrefix(id, a.sleepPrefix()) {
		return nil
	}
	return a.cfg.Kept.Delete(ctx, id)
}

// sweepSleeps removes the snapshots of sleeping sandboxes that no record names: a
// crash came before the record, or after it was forgotten.
func (a *Agent) sweepSleeps(ctx context.Context, named map[string]bool) error {
	if a.cfg.Kept == nil {
		return nil
	}
	list, err := a.cfg.Kept.List(ctx)
	if err != nil {
		return err
	}
	for _, rec := range list {
		if named[rec.ID] {
			continue
		}
		if err := a.dropSleep(ctx, rec.ID); err != nil {
			return err
		}
	}
	return nil
}

// canWake reports whether a sandbox without a machine can be brought back. A
// store that does not answer may have the snapshot.
func (a *Agent) canWake(ctx context.Context, id string) bool {
	if id == "" || a.cfg.Kept == nil {
		return false
	}
	_, err := a.cfg.Kept.Get(ctx, id)
	return api.CodeOf(err) != api.CodeSnapshotNotFound
}

// broughtBack hears how the loading of a machine that came from the snapshot id
// ended. A loaded one does not need the snapshot any more, and one that has been
// put away meanwhile has another.
func (a *Agent) broughtBack(s *sandbox, m driver.Machine, id string, failed error) {
	if id == "" {
		return
	}
	if err := s.take(a.flights.ctx); err != nil {
		return // the next start sees whether the machine is whole
	}
	defer s.give()
	ctx, cancel := detached(a.flights.ctx)
	defer cancel()
	if err := a.forgetSleep(ctx, s, m, id, failed); err != nil {
		a.log.Warn("the snapshot of a sandbox that is awake could not be removed", "sandbox", s.id, "error", err)
	}
}

// forgetSleep is the work of broughtBack. The record comes first: one that names
// a snapshot finds it.
func (a *Agent) forgetSleep(ctx context.Context, s *sandbox, m driver.Machine, id string, failed error) error {
	s.mu.Lock()
	current := s.machine == m && s.published
	s.mu.Unlock()
	rec := s.record()
	if rec.Sleep == id {
		if failed != nil || !current {
			return nil // its death leads back to sleep, its delete removes it
		}
		rec.Sleep = ""
		if err := a.journal.saveDurably(rec); err != nil {
			return err
		}
		s.update(func(r *record) { r.Sleep = "" })
	}
	if err := a.cfg.Fault.at("wake.forget"); err != nil {
		return err
	}
	return a.dropSleep(ctx, id)
}

// fellAsleep puts a sandbox back to sleep whose machine ended before it was
// loaded. The caller has the sandbox's turn.
func (a *Agent) fellAsleep(ctx context.Context, s *sandbox, why *api.Error) {
	rec := s.update(func(r *record) {
		r.Sandbox.State, r.Sandbox.GuestIP = host.StateHibernated, ""
	})
	a.log.Warn("a sandbox died before it was awake and sleeps again", "sandbox", s.id, "error", why)
	rec.Slot, rec.Handle = nil, nil
	if err := a.journal.saveDurably(rec); err != nil {
		a.log.Error("cannot record that a sandbox sleeps", "sandbox", s.id, "error", err)
	}
	if err := a.release(ctx, s); err != nil {
		a.log.Error("cannot free what a sleeping sandbox held", "sandbox", s.id, "error", err)
	}
	a.changes.emit(host.Change{SandboxID: s.id, State: host.StateHibernated, Error: why})
}
