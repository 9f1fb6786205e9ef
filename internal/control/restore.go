package control

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// Restore rolls a sandbox back in place: same id, same address, and its timeline
// goes on from there. Requests that arrive meanwhile wait for it; those under
// way are cut off. If it fails the sandbox is as before.
func (s *Service) Restore(ctx context.Context, who auth.Identity, id string, req api.Restore) (api.Sandbox, error) {
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer release()
	if !alive(row.Status) {
		return api.Sandbox{}, notAlive(&row)
	}
	snap, unpin, err := s.pinCheckpoint(ctx, who, id, req.Checkpoint)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer unpin()
	ctx, cancel := within(ctx, changeWithin)
	defer cancel()
	s.records.hold(&row)
	got, err := s.host.Rollback(ctx, id, snap.ID)
	if err != nil {
		s.recheck(ctx, &row)
		return api.Sandbox{}, s.offer(ctx, &snap, err)
	}
	// Its connections ended with what it was.
	s.records.drop(id)
	adopt(&row, got)
	row.Status, row.SnapshotID = api.StatusRunning, snap.ID
	if err := s.save(ctx, &row); err != nil {
		return api.Sandbox{}, err
	}
	s.emit(&row, EventRestored, map[string]string{"checkpoint": snap.ID, "name": snap.Name})
	s.thin(ctx, &row)
	return external(&row), nil
}

// pinCheckpoint finds a checkpoint of a sandbox by id or name, a snapshot taken
// of it by id, or its newest checkpoint, and keeps it from being removed until
// release.
func (s *Service) pinCheckpoint(ctx context.Context, who auth.Identity, sandboxID, which string) (store.Snapshot, func(), error) {
	var found store.Snapshot
	var err error
	switch {
	case which == "":
		found, err = s.store.NewestCheckpoint(ctx, sandboxID)
	case api.ValidSnapshotID(which):
		found, err = s.store.GetSnapshot(ctx, which)
	case validSnapshotName(which):
		found, err = s.store.CheckpointByName(ctx, sandboxID, which)
	default:
		err = store.ErrNotFound
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return found, nil, err
	}
	if err != nil || found.Org != who.Org || found.SandboxID != sandboxID {
		return found, nil, noCheckpoint(sandboxID, which)
	}
	snap, release, err := s.pinSnapshot(ctx, who, found.ID)
	if api.CodeOf(err) == api.CodeSnapshotNotFound {
		return snap, nil, noCheckpoint(sandboxID, which)
	}
	return snap, release, err
}

func noCheckpoint(sandboxID, which string) error {
	const hint = "The sandbox's timeline lists its checkpoints; of its snapshots, one taken of this very sandbox can be named by id."
	if which == "" {
		return api.Errorf(api.CodeSnapshotNotFound, "sandbox %s has no checkpoint", sandboxID).With("sandbox_id", sandboxID).
			WithHint("Take a checkpoint first.")
	}
	return api.Errorf(api.CodeSnapshotNotFound, "sandbox %s has no checkpoint %.140q", sandboxID, which).With("sandbox_id", sandboxID).WithHint(hint)
}

// offer adds to the refusal of a snapshot the name of one that would do: the
// newest of the same sandbox that holds files only. It is not taken by itself,
// since it lacks the processes.
func (s *Service) offer(ctx context.Context, snap *store.Snapshot, err error) error {
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.CodeSnapshotMismatch || snap.SandboxID == "" {
		return err
	}
	disk, lookErr := s.store.NewestDiskSnapshot(ctx, snap.Org, snap.SandboxID)
	if lookErr != nil {
		return err
	}
	name := disk.Name
	if name == "" || disk.Kind == api.KindCheckpoint {
		name = disk.ID
	}
	return refusal.With("fallback_id", disk.ID).With("fallback_name", disk.Name).
		WithHint("Snapshot " + name + " of the same sandbox holds its files without memory and starts on any host; name it as from_snapshot to use it.")
}
