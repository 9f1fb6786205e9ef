package control

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

// reconcileTogether bounds how many sandboxes are put right at once.
const reconcileTogether = 8

// runReconcile brings rows and host together at once and then every 30 s until
// ctx ends.
func (s *Service) runReconcile(ctx context.Context) {
	var pruned time.Time
	for {
		if err := s.reconcile(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("comparing rows with the host failed", "error", err)
		}
		if err := s.reconcileSnapshots(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("comparing snapshots with the host failed", "error", err)
		}
		if time.Since(pruned) >= pruneEvery {
			pruned = time.Now()
			if _, err := s.store.PruneLineage(ctx, pruned.Add(-keepLineage)); err != nil && ctx.Err() == nil {
				s.log.Warn("removing old lineages failed", "error", err)
			}
			if _, err := s.store.PruneIdempotency(ctx, pruned.Add(-keepIdempotency)); err != nil && ctx.Err() == nil {
				s.log.Warn("removing old idempotency keys failed", "error", err)
			}
			if _, err := s.store.PruneEvents(ctx, pruned.Add(-keepEvents), pruned.Add(-keepAllEvents)); err != nil && ctx.Err() == nil {
				s.log.Warn("removing old events failed", "error", err)
			}
		}
		if !sleep(ctx, reconcileEvery) {
			return
		}
	}
}

// reconcile compares every row with the host and puts right what differs. Both
// lists are only hints, because sandboxes come and go while they are read: every
// difference is looked at again in the sandbox's turn.
func (s *Service) reconcile(ctx context.Context) error {
	there, err := s.host.List(ctx)
	if err != nil {
		return err
	}
	rows, err := s.store.AllSandboxes(ctx)
	if err != nil {
		return err
	}
	onHost := make(map[string]host.Sandbox, len(there))
	for _, b := range there {
		onHost[b.ID] = b
	}
	var differ []string
	for i := range rows {
		row := &rows[i]
		if got, ok := onHost[row.ID]; !agrees(row, got, ok) && !s.creations.has(row.ID) {
			differ = append(differ, row.ID)
		}
		delete(onHost, row.ID)
	}
	for id := range onHost {
		differ = append(differ, id)
	}
	var g errgroup.Group
	g.SetLimit(reconcileTogether)
	for _, id := range differ {
		g.Go(func() error { return s.putRight(ctx, id) })
	}
	return g.Wait()
}

// agrees reports whether a row says what the host says.
func agrees(row *store.Sandbox, got host.Sandbox, there bool) bool {
	if there && alive(row.Status) && !got.Network.Equal(hostNetwork(row.Network)) {
		return false
	}
	switch row.Status {
	case api.StatusRunning:
		return there && got.State == host.StateRunning
	case api.StatusPaused:
		return there && got.State == host.StatePaused
	case api.StatusHibernated:
		return there && got.State == host.StateHibernated
	case api.StatusFailed:
		return !there
	}
	return false
}

// putRight makes row and host agree about one sandbox.
func (s *Service) putRight(ctx context.Context, id string) error {
	if s.creations.has(id) {
		return nil
	}
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := finish(ctx)
	defer cancel()
	row, err := s.current(ctx, id)
	if err != nil {
		return err
	}
	if row == nil {
		// Nobody wants it. A create makes the row before the sandbox.
		s.log.Info("removing a sandbox that has no row", "sandbox_id", id)
		return s.host.Delete(ctx, id)
	}
	got, err := s.host.Get(ctx, id)
	there := err == nil
	if err != nil && api.CodeOf(err) != api.CodeSandboxNotFound {
		return err
	}
	return s.settle(ctx, row, got, there)
}

// settle decides what becomes of a sandbox whose row and host differ.
func (s *Service) settle(ctx context.Context, row *store.Sandbox, got host.Sandbox, there bool) error {
	if want := hostNetwork(row.Network); there && alive(row.Status) && got.State != host.StateFailed && !got.Network.Equal(want) {
		if err := s.host.SetNetwork(ctx, row.ID, want); err != nil {
			return err
		}
		got.Network = want
	}
	switch {
	case agrees(row, got, there):
		return nil
	case row.Status == api.StatusCreating:
		// The process that made it died before it could answer: nobody
		// knows the id.
		s.log.Info("removing a sandbox whose create was cut off", "sandbox_id", row.ID)
		return s.remove(ctx, row, EventDeleted)
	case row.Status == api.StatusDeleting:
		return s.remove(ctx, row, endOf(row))
	case row.Status == api.StatusFailed:
		return s.host.Delete(ctx, row.ID)
	case !there:
		return s.fail(ctx, row, api.Errorf(api.CodeSandboxDied, "sandbox %s was no longer on its host", row.ID))
	case got.State == host.StateFailed:
		return s.fail(ctx, row, deathOf(row.ID, got.Error))
	case got.State == host.StateHibernated:
		row.Status = api.StatusHibernated
		if err := s.save(ctx, row); err != nil {
			return err
		}
		s.emit(row, EventHibernated, map[string]string{"reason": "host"})
		return nil
	}
	if row.Status == api.StatusHibernated {
		adopt(row, got) // it was woken, which was not written down
	}
	row.Status = api.StatusRunning
	if got.State == host.StatePaused {
		row.Status = api.StatusPaused
	}
	return s.save(ctx, row)
}

// endOf is the event of a deletion that was cut off.
func endOf(row *store.Sandbox) string {
	if !row.ExpiresAt.IsZero() && !row.ExpiresAt.After(time.Now()) {
		return EventExpired
	}
	return EventDeleted
}

func deathOf(id string, cause *api.Error) *api.Error {
	if cause != nil {
		return cause
	}
	return api.Errorf(api.CodeSandboxDied, "sandbox %s has died", id)
}

// fail marks a sandbox as dead, keeps its row for a while and frees what the
// host still holds of it.
func (s *Service) fail(ctx context.Context, row *store.Sandbox, why *api.Error) error {
	row.Status, row.Error = api.StatusFailed, why
	row.ExpiresAt = now().Add(keepFailed)
	if err := s.save(ctx, row); err != nil {
		return err
	}
	s.reaper.mind(row.ExpiresAt)
	s.log.Warn("a sandbox died", "sandbox_id", row.ID, "org", row.Org, "error", why)
	s.emit(row, EventDied, errorData(why))
	return s.host.Delete(ctx, row.ID)
}

// runChanges takes in what the host says happened, until ctx ends.
func (s *Service) runChanges(ctx context.Context) {
	for ctx.Err() == nil {
		changes, err := s.host.Changes(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("following the host's changes failed", "error", err)
			}
		} else {
			s.takeChanges(ctx, changes)
		}
		sleep(ctx, time.Second)
	}
}

func (s *Service) takeChanges(ctx context.Context, changes <-chan host.Change) {
	var g errgroup.Group
	g.SetLimit(reconcileTogether)
	for change := range changes {
		if change.Denied != nil {
			s.denied(ctx, change.SandboxID, change.Denied)
			continue
		}
		if change.State != host.StateFailed && change.State != host.StateHibernated {
			continue
		}
		g.Go(func() error {
			if err := s.changed(ctx, change); err != nil && ctx.Err() == nil {
				s.log.Warn("a change on the host was not written down", "sandbox_id", change.SandboxID, "state", change.State, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions give no errors
}

// changed takes in that a sandbox died, or is on disk again because it did not
// come back whole. The news may be older than what was done with the sandbox
// since, so the host is asked how it is now.
func (s *Service) changed(ctx context.Context, change host.Change) error {
	release, err := s.locks.take(ctx, change.SandboxID)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := finish(ctx)
	defer cancel()
	row, err := s.current(ctx, change.SandboxID)
	if err != nil || row == nil || !alive(row.Status) {
		return err
	}
	got, err := s.host.Get(ctx, row.ID)
	if err == nil && got.State != host.StateFailed {
		return s.settle(ctx, row, got, true)
	}
	if change.State != host.StateFailed {
		return err // the next comparison sees more
	}
	return s.fail(ctx, row, deathOf(row.ID, change.Error))
}
