package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	maxKeepLast = 10000
	maxAge      = 10 * 365 * 24 * 3600 // seconds
)

// Checkpoint adds a checkpoint to the timeline of a sandbox, which goes on from
// it. Then those go that the sandbox's policy does not keep.
func (s *Service) Checkpoint(ctx context.Context, who auth.Identity, id string, req api.Checkpoint) (api.Snapshot, error) {
	if err := checkSnapshotName(req.Name); err != nil {
		return api.Snapshot{}, err
	}
	release, row, err := s.lockAwake(ctx, who, id)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer release()
	snap := newSnapshot(&row, api.KindCheckpoint, req.Name)
	if age := row.Checkpoints.MaxAgeSeconds; age > 0 {
		snap.ExpiresAt = snap.CreatedAt.Add(time.Duration(age) * time.Second)
	}
	if err := s.capture(ctx, snap); err != nil {
		return api.Snapshot{}, err
	}
	row.SnapshotID = snap.ID
	s.reaper.mind(snap.ExpiresAt)
	s.thin(ctx, &row)
	return externalSnapshot(snap), nil
}

// Timeline gives the checkpoints of a sandbox, oldest first.
func (s *Service) Timeline(ctx context.Context, who auth.Identity, id string) (api.Timeline, error) {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return api.Timeline{}, err
	}
	list, err := s.store.Checkpoints(ctx, id)
	if err != nil {
		return api.Timeline{}, err
	}
	t := api.Timeline{Checkpoints: []api.Snapshot{}, Policy: row.Checkpoints}
	for i := range list {
		if list[i].Status != store.SnapshotReady {
			continue
		}
		t.Checkpoints = append(t.Checkpoints, externalSnapshot(&list[i]))
		if list[i].ID == row.SnapshotID {
			t.Current = row.SnapshotID
		}
	}
	return t, nil
}

// thin removes the checkpoints that a sandbox's policy does not keep: those that
// are too old and those that are not among the last. The one that the sandbox
// goes on from stays. What cannot be removed now is tried again with the next.
func (s *Service) thin(ctx context.Context, row *store.Sandbox) {
	policy := row.Checkpoints
	if policy == (api.CheckpointPolicy{}) {
		return
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	list, err := s.store.Checkpoints(ctx, row.ID)
	if err != nil {
		s.log.Warn("old checkpoints stay for now", "sandbox_id", row.ID, "error", err)
		return
	}
	list = slices.DeleteFunc(list, func(n store.Snapshot) bool { return n.Status != store.SnapshotReady })
	oldest := now().Add(-time.Duration(policy.MaxAgeSeconds) * time.Second)
	for i, n := range list {
		surplus := policy.KeepLast > 0 && len(list)-i > policy.KeepLast
		aged := policy.MaxAgeSeconds > 0 && !n.CreatedAt.After(oldest)
		if n.ID != row.SnapshotID && (surplus || aged) {
			s.dropOld(ctx, &n)
		}
	}
}

// dropOld removes a checkpoint by policy and reports whether it is gone.
func (s *Service) dropOld(ctx context.Context, n *store.Snapshot) bool {
	err := s.dropSnapshot(ctx, n.ID)
	if err != nil && api.CodeOf(err) != api.CodeSnapshotNotFound {
		s.log.Info("an old checkpoint stays for now", "snapshot_id", n.ID, "sandbox_id", n.SandboxID, "error", err)
		return false
	}
	return true
}

// dropTimeline removes all checkpoints of a sandbox that is ending. One in use
// is left to the next reconciliation.
func (s *Service) dropTimeline(ctx context.Context, sandboxID string) error {
	list, err := s.store.Checkpoints(ctx, sandboxID)
	if err != nil {
		return err
	}
	for _, n := range list {
		switch err := s.dropSnapshot(ctx, n.ID); api.CodeOf(err) {
		case api.CodeSnapshotNotFound:
		case api.CodeSnapshotInUse:
			if err := s.store.SetSnapshotStatus(ctx, n.ID, store.SnapshotDeleting); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		default:
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func checkCheckpoints(p *api.CheckpointPolicy) error {
	if p == nil {
		return nil
	}
	if p.KeepLast < 0 || p.KeepLast > maxKeepLast {
		return invalid("checkpoints.keep_last", "keep_last must be between 0 and %d", maxKeepLast)
	}
	if p.MaxAgeSeconds < 0 || p.MaxAgeSeconds > maxAge {
		return invalid("checkpoints.max_age_seconds", "max_age_seconds must be between 0 and %d", maxAge)
	}
	return nil
}
