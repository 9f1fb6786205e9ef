package control

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
)

// newSnapshot is the row of a snapshot of a sandbox that has yet to be taken.
func newSnapshot(row *store.Sandbox, kind api.SnapshotKind, name string) *store.Snapshot {
	return &store.Snapshot{
		ID: api.NewSnapshotID(), Org: row.Org, Name: name, Kind: kind, SandboxID: row.ID, ParentID: row.SnapshotID, Memory: true,
		Template: row.Template, Driver: row.Driver, Host: row.Host, Spec: row.Spec, Status: store.SnapshotCreating, CreatedAt: now(),
		Network: store.Network{Rules: row.Network.Rules},
	}
}

// capture has the host take a snapshot of a sandbox whose turn the caller holds.
func (s *Service) capture(ctx context.Context, snap *store.Snapshot) error {
	return s.makeSnapshot(ctx, snap, func() (host.Snapshot, error) {
		return s.host.Snapshot(ctx, snap.SandboxID, host.SnapshotSpec{ID: snap.ID, Memory: snap.Memory})
	})
}

// makeSnapshot writes the row of a snapshot, has the host make it and writes
// down what came of it. What fails is undone.
func (s *Service) makeSnapshot(ctx context.Context, snap *store.Snapshot, do func() (host.Snapshot, error)) error {
	release, err := s.pins.take(snap.ID)
	if err != nil {
		return err
	}
	defer release()
	if err := s.store.CreateSnapshot(ctx, snap); err != nil {
		if errors.Is(err, store.ErrConflict) {
			return api.Wrap(api.CodeSnapshotExists, err, "there is a %s with the name %s", snap.Kind, snap.Name).With("name", snap.Name)
		}
		if ctx.Err() != nil { // the insert may have been made
			s.undoSnapshot(ctx, snap)
		}
		return err
	}
	got, err := do()
	if err == nil {
		snap.Status = store.SnapshotReady
		learn(snap, got)
		if snap.Kind == api.KindCheckpoint {
			err = s.store.UpdateCheckpoint(ctx, snap)
		} else {
			err = s.store.UpdateSnapshot(ctx, snap)
		}
	}
	if err != nil {
		s.undoSnapshot(ctx, snap)
		s.log.Warn("a snapshot was not made", "snapshot_id", snap.ID, "sandbox_id", snap.SandboxID, "org", snap.Org, "error", err)
	}
	return err
}

// learn takes over what the host says of a snapshot.
func learn(snap *store.Snapshot, got host.Snapshot) {
	snap.Memory, snap.Template, snap.Driver = got.Memory, got.Template, got.Driver
	snap.Spec = store.Spec{CPU: got.CPU, MemoryMB: got.MemoryMB, DiskMB: got.DiskMB}
	snap.SizeBytes, snap.StoredBytes, snap.PauseMS = got.SizeBytes, got.StoredBytes, got.PauseMS
}

// undoSnapshot removes what a failed snapshot left. What cannot be removed now
// is left to the next reconciliation, which finds the row.
func (s *Service) undoSnapshot(ctx context.Context, snap *store.Snapshot) {
	ctx, cancel := finish(ctx)
	defer cancel()
	err := s.host.DeleteSnapshot(ctx, snap.ID)
	if err == nil {
		err = s.store.DeleteSnapshot(ctx, snap.ID)
	}
	if err != nil {
		s.log.Warn("a failed snapshot is cleaned later", "snapshot_id", snap.ID, "error", err)
	}
}
