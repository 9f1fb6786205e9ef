package control

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// changeWithin bounds how long the host may take to move a machine between
// memory and disk. What was begun is finished although its client has left.
const changeWithin = 5 * time.Minute

// Hibernate moves a running or paused sandbox to disk; requests under way are
// cut off. Hibernating a hibernated one changes nothing.
func (s *Service) Hibernate(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error) {
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer release()
	if row.Status == api.StatusHibernated {
		return external(&row), nil
	}
	if !alive(row.Status) {
		return api.Sandbox{}, notAlive(&row)
	}
	ctx, cancel := within(ctx, changeWithin)
	defer cancel()
	if err := s.hibernate(ctx, &row, "request"); err != nil {
		return api.Sandbox{}, err
	}
	return external(&row), nil
}

// hibernate puts a sandbox to sleep whose turn the caller holds. The host goes
// first, as in move; requests that arrive meanwhile wait for the turn and wake
// it again.
func (s *Service) hibernate(ctx context.Context, row *store.Sandbox, reason string) error {
	s.records.hold(row)
	if err := s.host.Hibernate(ctx, row.ID); err != nil {
		s.recheck(ctx, row)
		return err
	}
	row.Status = api.StatusHibernated
	if err := s.save(ctx, row); err != nil {
		return err
	}
	s.emit(row, EventHibernated, map[string]string{"reason": reason})
	return nil
}

// recheck takes the state of a sandbox from the host after a change of it
// failed there. Where the host does not answer, it is taken to be as before, and
// the next reconciliation compares again.
func (s *Service) recheck(ctx context.Context, row *store.Sandbox) {
	ctx, cancel := finish(ctx)
	defer cancel()
	s.remember(row)
	got, err := s.host.Get(ctx, row.ID)
	there := err == nil
	if !there && api.CodeOf(err) != api.CodeSandboxNotFound {
		return
	}
	if err := s.settle(ctx, row, got, there); err != nil {
		s.log.Warn("a sandbox is compared with its host again later", "sandbox_id", row.ID, "error", err)
	}
}

// alive reports whether a sandbox is in memory or asleep.
func alive(status api.Status) bool {
	return status == api.StatusRunning || status == api.StatusPaused || status == api.StatusHibernated
}

func notAlive(row *store.Sandbox) error {
	return inState(row.ID, &record{status: row.Status, failure: row.Error}, "running, paused or hibernated")
}

// within gives a context for a change that is finished although its client has
// left.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
