package control

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

// Promote marks a child as the one that was chosen of its fork. Its siblings can
// be deleted with that; what was forked from them stays, since it is someone's
// own choice. A call that fails in the middle may be repeated.
func (s *Service) Promote(ctx context.Context, who auth.Identity, id string, req api.Promote) (api.Promoted, error) {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return api.Promoted{}, err
	}
	if row.TreeID == "" {
		return api.Promoted{}, api.Errorf(api.CodeInvalidRequest, "sandbox %s did not come from a fork", id).With("field", "tree_id").
			WithHint("Promote a child that fork or fork-tree answered.")
	}
	if req.TreeID != "" && req.TreeID != row.TreeID {
		return api.Promoted{}, invalid("tree_id", "sandbox %s does not belong to the tree %.40q but to %s", id, req.TreeID, row.TreeID)
	}
	if !alive(row.Status) {
		return api.Promoted{}, notAlive(&row)
	}
	switch err := s.store.Promote(ctx, who.Org, row.TreeID, id); {
	case errors.Is(err, store.ErrNotFound):
		return api.Promoted{}, notFound(id)
	case err != nil:
		return api.Promoted{}, err
	}
	deleted := []string{}
	if req.CleanupSiblings {
		if deleted, err = s.deleteSiblings(ctx, who, &row); err != nil {
			return api.Promoted{}, err
		}
	}
	s.emit(&row, EventTreePromoted, map[string]string{"tree_id": row.TreeID, "deleted": strconv.Itoa(len(deleted))})
	return api.Promoted{Sandbox: external(&row), TreeID: row.TreeID, Deleted: deleted}, nil
}

// deleteSiblings deletes the other children of a sandbox's fork and gives their
// ids.
func (s *Service) deleteSiblings(ctx context.Context, who auth.Identity, chosen *store.Sandbox) ([]string, error) {
	rows, err := s.store.Siblings(ctx, who.Org, chosen.TreeID)
	if err != nil {
		return nil, err
	}
	deleted := []string{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(reapTogether)
	for _, row := range rows {
		if row.ID == chosen.ID {
			continue
		}
		g.Go(func() error {
			err := s.Delete(ctx, who, row.ID)
			if api.CodeOf(err) == api.CodeSandboxNotFound {
				return nil
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				deleted = append(deleted, row.ID)
			}
			return err
		})
	}
	err = g.Wait()
	slices.Sort(deleted)
	return deleted, err
}
