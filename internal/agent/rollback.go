package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// Rollback replaces a running, paused or hibernated sandbox by a snapshot of it.
// If it fails the sandbox is as before.
func (a *Agent) Rollback(ctx context.Context, id, snapshot string) (host.Sandbox, error) {
	began := time.Now()
	s, err := a.find(ctx, id)
	if err != nil {
		return host.Sandbox{}, err
	}
	if !api.ValidSnapshotID(snapshot) {
		return host.Sandbox{}, snapshotNotFound(snapshot)
	}
	ctx, leave, err := a.during(ctx)
	if err != nil {
		return host.Sandbox{}, err
	}
	defer leave()
	if err := a.rollBack(ctx, s, snapshot, began); err != nil {
		return host.Sandbox{}, err
	}
	return a.Get(ctx, id)
}

func (a *Agent) rollBack(ctx context.Context, s *sandbox, snapshot string, began time.Time) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	if _, visible := s.view(); !visible || !s.sleeping() {
		if _, _, err := s.current(); err != nil {
			s.give()
			return err
		}
	}
	return a.revive(ctx, "rollback", s, snapshot, api.BootRestore, began)
}
