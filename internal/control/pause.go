package control

import (
	"context"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// Pause freezes a running sandbox. Pausing a paused one changes nothing.
func (s *Service) Pause(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error) {
	return s.move(ctx, who, id, api.StatusRunning, api.StatusPaused, s.host.Pause, EventPaused)
}

// Resume lets a paused sandbox go on. Resuming a running one changes nothing.
func (s *Service) Resume(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error) {
	return s.move(ctx, who, id, api.StatusPaused, api.StatusRunning, s.host.Resume, EventResumed)
}

// move takes a sandbox from one state to another. The host goes first: should
// the process die before the row is written, the reconciliation takes the
// state from the host.
func (s *Service) move(ctx context.Context, who auth.Identity, id string, from, to api.Status,
	do func(context.Context, string) error, event string) (api.Sandbox, error) {
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer release()
	if row.Status == to {
		return external(&row), nil
	}
	if row.Status != from {
		return api.Sandbox{}, inState(id, &record{status: row.Status, failure: row.Error}, string(from))
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	if err := do(ctx, id); err != nil {
		return api.Sandbox{}, err
	}
	row.Status = to
	if err := s.save(ctx, &row); err != nil {
		return api.Sandbox{}, err
	}
	s.emit(&row, event, nil)
	return external(&row), nil
}

// lockRow authorises the caller, waits for the sandbox's turn and reads its row
// as it is then.
func (s *Service) lockRow(ctx context.Context, who auth.Identity, id string) (release func(), row store.Sandbox, err error) {
	if _, err := s.find(ctx, who, id); err != nil {
		return nil, row, err
	}
	if release, err = s.locks.take(ctx, id); err != nil {
		return nil, row, err
	}
	if row, err = s.row(ctx, who, id); err != nil {
		release()
		return nil, row, err
	}
	return release, row, nil
}
