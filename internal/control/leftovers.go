package control

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
)

// reconcileSnapshots brings the rows of snapshots and what the host has
// together. Nobody can use a snapshot whose making was cut off, so it goes; one
// that the host has lost is nothing but a name, and goes as well.
func (s *Service) reconcileSnapshots(ctx context.Context) error {
	// The host is asked first: a row is there before the host begins, so what
	// has no row now is wanted by nobody.
	there, err := s.host.Snapshots(ctx)
	if err != nil {
		return err
	}
	hostID, err := s.hostName(ctx)
	if err != nil {
		return err
	}
	rows, err := s.store.AllSnapshots(ctx)
	if err != nil {
		return err
	}
	onHost := make(map[string]host.Snapshot, len(there))
	for _, n := range there {
		onHost[n.ID] = n
	}
	var errs []error
	for i := range rows {
		row := &rows[i]
		got, found := onHost[row.ID]
		delete(onHost, row.ID)
		if row.Host == hostID && !s.pins.used(row.ID) {
			errs = append(errs, s.settleSnapshot(ctx, row, got, found))
		}
	}
	for id := range onHost {
		errs = append(errs, s.dropStray(ctx, id))
	}
	return errors.Join(errs...)
}

// settleSnapshot decides what becomes of a row that nobody uses.
func (s *Service) settleSnapshot(ctx context.Context, row *store.Snapshot, got host.Snapshot, found bool) error {
	if row.Status == store.SnapshotReady && found {
		if err := s.dropOrphan(ctx, row); err != nil {
			return err
		}
		if got.StoredBytes == row.StoredBytes && got.SizeBytes == row.SizeBytes {
			return nil
		}
		return s.measureSnapshot(ctx, row.ID, got)
	}
	if row.Status == store.SnapshotReady {
		return s.lose(ctx, row)
	}
	// It is used no more, but may be done by now.
	fresh, err := s.store.GetSnapshot(ctx, row.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && fresh.Status == store.SnapshotReady {
		return nil
	}
	if err != nil {
		return err
	}
	s.log.Info("removing what is left of a snapshot", "snapshot_id", row.ID, "status", row.Status)
	return unlessTaken(s.dropSnapshot(ctx, row.ID))
}

// measureSnapshot writes down what a snapshot takes now that it is packed.
func (s *Service) measureSnapshot(ctx context.Context, id string, got host.Snapshot) error {
	release, err := s.pins.take(id)
	if err != nil {
		return nil // it is being removed
	}
	defer release()
	row, err := s.store.GetSnapshot(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.Status != store.SnapshotReady {
		return nil
	}
	if err != nil {
		return err
	}
	row.SizeBytes, row.StoredBytes = got.SizeBytes, got.StoredBytes
	return s.store.UpdateSnapshot(ctx, &row)
}

// dropOrphan removes a checkpoint whose sandbox is gone.
func (s *Service) dropOrphan(ctx context.Context, row *store.Snapshot) error {
	if row.Kind != api.KindCheckpoint {
		return nil
	}
	owner, err := s.current(ctx, row.SandboxID)
	if err != nil || owner != nil {
		return err
	}
	return unlessTaken(s.dropSnapshot(ctx, row.ID))
}

// lose removes the row of a snapshot that the host says it does not have.
func (s *Service) lose(ctx context.Context, row *store.Snapshot) error {
	release, err := s.pins.claim(row.ID)
	if err != nil {
		return unlessTaken(err)
	}
	defer release()
	if _, err := s.host.GetSnapshot(ctx, row.ID); err == nil || api.CodeOf(err) != api.CodeSnapshotNotFound {
		return err
	}
	s.log.Error("a snapshot is no longer on its host", "snapshot_id", row.ID, "name", row.Name, "org", row.Org, "sandbox_id", row.SandboxID)
	return s.store.DeleteSnapshot(ctx, row.ID)
}

// dropStray removes a snapshot of the host that has no row.
func (s *Service) dropStray(ctx context.Context, id string) error {
	release, err := s.pins.claim(id)
	if err != nil {
		return unlessTaken(err)
	}
	defer release()
	if _, err := s.store.GetSnapshot(ctx, id); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	s.log.Info("removing a snapshot that has no row", "snapshot_id", id)
	return s.host.DeleteSnapshot(ctx, id)
}

// unlessTaken is err, unless it says that another uses or removes the snapshot.
func unlessTaken(err error) error {
	if code := api.CodeOf(err); code == api.CodeSnapshotInUse || code == api.CodeSnapshotNotFound {
		return nil
	}
	return err
}
