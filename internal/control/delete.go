package control

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// Delete ends a sandbox and removes it; one that is being created is given up.
// A deletion that has begun is finished when the client leaves, and by the next
// reconciliation when the host does not answer.
func (s *Service) Delete(ctx context.Context, who auth.Identity, id string) error {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return err
	}
	gaveUp := row.Status == api.StatusCreating && s.creations.giveUp(id)
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := finish(ctx)
	defer cancel()
	row, err = s.row(ctx, who, id)
	if gaveUp && api.CodeOf(err) == api.CodeSandboxNotFound {
		return nil // the create cleaned up after itself
	}
	if err != nil {
		return err
	}
	return s.remove(ctx, &row, EventDeleted)
}

// remove ends a sandbox whose turn the caller holds. The state deleting stands
// in the row before the host is asked, so that a crash in between does not look
// like a sandbox that died.
func (s *Service) remove(ctx context.Context, row *store.Sandbox, event string) error {
	if row.Status != api.StatusDeleting {
		row.Status = api.StatusDeleting
		if err := s.save(ctx, row); err != nil {
			return err
		}
	}
	if err := s.host.Delete(ctx, row.ID); err != nil {
		return err
	}
	if err := s.dropTimeline(ctx, row.ID); err != nil {
		return err
	}
	err := s.store.DeleteSandbox(ctx, row.ID, now())
	s.records.drop(row.ID)
	if err == nil {
		s.emit(row, event, nil)
	}
	return err
}

// current reads the row of any org; nil when there is none.
func (s *Service) current(ctx context.Context, id string) (*store.Sandbox, error) {
	row, err := s.store.GetSandbox(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &row, nil
}
