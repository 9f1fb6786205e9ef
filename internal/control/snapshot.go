package control

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// SnapshotQuery selects snapshots. Empty fields select all.
type SnapshotQuery struct {
	SandboxID string
	Kind      api.SnapshotKind
	Limit     int
	Page      string
}

// Snapshot takes a snapshot of a sandbox, which goes on; a hibernated one is
// woken for it. If the client leaves before the snapshot is there it is undone.
func (s *Service) Snapshot(ctx context.Context, who auth.Identity, id string, req api.CreateSnapshot) (api.Snapshot, error) {
	if err := checkSnapshotName(req.Name); err != nil {
		return api.Snapshot{}, err
	}
	if err := checkMetadata(req.Metadata); err != nil {
		return api.Snapshot{}, err
	}
	release, row, err := s.lockAwake(ctx, who, id)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer release()
	snap := newSnapshot(&row, api.KindSnapshot, req.Name)
	snap.Memory = req.Memory == nil || *req.Memory
	snap.Metadata = req.Metadata
	if err := s.capture(ctx, snap); err != nil {
		return api.Snapshot{}, err
	}
	return externalSnapshot(snap), nil
}

// Snapshots gives one page of the caller's snapshots, newest first.
func (s *Service) Snapshots(ctx context.Context, who auth.Identity, q SnapshotQuery) (api.SnapshotList, error) {
	if q.Limit < 0 || q.Limit > maxPage {
		return api.SnapshotList{}, invalid("limit", "limit must be between 1 and %d", maxPage)
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	if q.Kind != "" && q.Kind != api.KindSnapshot && q.Kind != api.KindCheckpoint {
		return api.SnapshotList{}, invalid("kind", "there is no kind %.40q", string(q.Kind))
	}
	if q.SandboxID != "" && !api.ValidID(q.SandboxID) {
		return api.SnapshotList{}, invalid("sandbox_id", "%.40q is not the id of a sandbox", q.SandboxID)
	}
	rows, next, err := s.store.ListSnapshots(ctx, store.SnapshotQuery{
		Org: who.Org, SandboxID: q.SandboxID, Kind: q.Kind, Limit: q.Limit, Page: q.Page,
	})
	list := api.SnapshotList{Snapshots: make([]api.Snapshot, len(rows)), NextPage: next}
	for i := range rows {
		list.Snapshots[i] = externalSnapshot(&rows[i])
	}
	return list, err
}

// GetSnapshot gives the record of a snapshot, by its id or name, or of a
// checkpoint by its id.
func (s *Service) GetSnapshot(ctx context.Context, who auth.Identity, idOrName string) (api.Snapshot, error) {
	snap, err := s.readySnapshot(ctx, who, idOrName)
	if err != nil {
		return api.Snapshot{}, err
	}
	if snap.StoredBytes == 0 {
		s.refresh(ctx, &snap)
	}
	return externalSnapshot(&snap), nil
}

// refresh asks the host what a snapshot takes that was not packed when it was
// written down. An answer that does not come changes nothing.
func (s *Service) refresh(ctx context.Context, snap *store.Snapshot) {
	if got, err := s.host.GetSnapshot(ctx, snap.ID); err == nil {
		snap.SizeBytes, snap.StoredBytes = got.SizeBytes, got.StoredBytes
	}
}

// DeleteSnapshot forgets a snapshot or checkpoint. What was made from it goes on
// without it; while something is being made from it, it stays.
func (s *Service) DeleteSnapshot(ctx context.Context, who auth.Identity, idOrName string) error {
	snap, err := s.anySnapshot(ctx, who, idOrName)
	if err != nil {
		return err
	}
	if snap.Status == store.SnapshotCreating {
		return noSnapshot(idOrName)
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	return s.dropSnapshot(ctx, snap.ID)
}

// dropSnapshot removes a snapshot that nobody uses: first from what its owner
// sees, then from the host, then its row, so that a crash in between leaves a
// row to go on from.
func (s *Service) dropSnapshot(ctx context.Context, id string) error {
	release, err := s.pins.claim(id)
	if err != nil {
		return err
	}
	defer release()
	switch err := s.store.SetSnapshotStatus(ctx, id, store.SnapshotDeleting); {
	case errors.Is(err, store.ErrNotFound):
		return noSnapshot(id)
	case err != nil:
		return err
	}
	if err := s.host.DeleteSnapshot(ctx, id); err != nil {
		return err
	}
	return s.store.DeleteSnapshot(ctx, id)
}

// anySnapshot finds a row of the caller's by id or name, whatever its status.
func (s *Service) anySnapshot(ctx context.Context, who auth.Identity, idOrName string) (store.Snapshot, error) {
	var snap store.Snapshot
	var err error
	switch {
	case api.ValidSnapshotID(idOrName):
		snap, err = s.store.GetSnapshot(ctx, idOrName)
	case validSnapshotName(idOrName):
		snap, err = s.store.SnapshotByName(ctx, who.Org, idOrName)
	default:
		err = store.ErrNotFound
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && snap.Org != who.Org {
		return store.Snapshot{}, noSnapshot(idOrName)
	}
	return snap, err
}

// readySnapshot is anySnapshot for one that is there for its owner.
func (s *Service) readySnapshot(ctx context.Context, who auth.Identity, idOrName string) (store.Snapshot, error) {
	snap, err := s.anySnapshot(ctx, who, idOrName)
	if err == nil && snap.Status != store.SnapshotReady {
		return store.Snapshot{}, noSnapshot(idOrName)
	}
	return snap, err
}

// pinSnapshot finds a snapshot and keeps it from being removed until release.
func (s *Service) pinSnapshot(ctx context.Context, who auth.Identity, idOrName string) (snap store.Snapshot, release func(), err error) {
	if snap, err = s.readySnapshot(ctx, who, idOrName); err != nil {
		return snap, nil, err
	}
	if release, err = s.pins.take(snap.ID); err != nil {
		return snap, nil, err
	}
	// It may have been removed before it was pinned.
	if snap, err = s.readySnapshot(ctx, who, snap.ID); err != nil {
		release()
		return snap, nil, err
	}
	return snap, release, nil
}

func noSnapshot(idOrName string) error {
	return api.Errorf(api.CodeSnapshotNotFound, "there is no snapshot %.140q", idOrName)
}

var snapshotName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`) })

// validSnapshotName reports whether a name can be given: one that begins like an
// id could be meant as one.
func validSnapshotName(name string) bool {
	return snapshotName().MatchString(name) && !api.LooksLikeSnapshotID(name)
}

// checkSnapshotName takes no name at all as well.
func checkSnapshotName(name string) error {
	if name != "" && !validSnapshotName(name) {
		return invalid("name", "a name must have 1 to 128 letters, digits, dots, dashes and underscores and may not begin with %q", api.SnapshotPrefix)
	}
	return nil
}

// externalSnapshot is a row as its owner sees it.
func externalSnapshot(n *store.Snapshot) api.Snapshot {
	return api.Snapshot{
		ID: n.ID, Name: n.Name, Kind: n.Kind, SandboxID: n.SandboxID, ParentID: n.ParentID, Memory: n.Memory,
		Template: n.Template, Driver: n.Driver, Host: n.Host, CPU: n.Spec.CPU, MemoryMB: n.Spec.MemoryMB, DiskMB: n.Spec.DiskMB,
		SizeBytes: n.SizeBytes, StoredBytes: n.StoredBytes, PauseMS: n.PauseMS, Metadata: maps.Clone(n.Metadata), CreatedAt: n.CreatedAt,
	}
}
