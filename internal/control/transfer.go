package control

import (
	"context"
	"io"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
)

// ExportSnapshot gives the snapshot and its file, which the caller closes. It
// cannot be deleted before that.
func (s *Service) ExportSnapshot(ctx context.Context, who auth.Identity, idOrName string) (api.Snapshot, io.ReadCloser, error) {
	snap, release, err := s.pinSnapshot(ctx, who, idOrName)
	if err != nil {
		return api.Snapshot{}, nil, err
	}
	file, err := s.host.Export(ctx, snap.ID)
	if err != nil {
		release()
		return api.Snapshot{}, nil, err
	}
	return externalSnapshot(&snap), &pinned{ReadCloser: file, release: sync.OnceFunc(release)}, nil
}

// pinned is a file of a snapshot that is in use until it is closed.
type pinned struct {
	io.ReadCloser
	release func()
}

func (p *pinned) Close() error {
	defer p.release()
	return p.ReadCloser.Close()
}

// ImportSnapshot keeps a file that ExportSnapshot gave, here or elsewhere, as a
// snapshot of the caller's.
func (s *Service) ImportSnapshot(ctx context.Context, who auth.Identity, name string, file io.Reader) (api.Snapshot, error) {
	if err := checkSnapshotName(name); err != nil {
		return api.Snapshot{}, err
	}
	hostID, err := s.hostName(ctx)
	if err != nil {
		return api.Snapshot{}, err
	}
	snap := &store.Snapshot{
		ID: api.NewSnapshotID(), Org: who.Org, Name: name, Kind: api.KindSnapshot, Host: hostID,
		Status: store.SnapshotCreating, CreatedAt: now(),
	}
	err = s.makeSnapshot(ctx, snap, func() (host.Snapshot, error) {
		return s.host.Import(ctx, host.SnapshotSpec{ID: snap.ID}, file)
	})
	if api.CodeOf(err) == api.CodeSnapshotCorrupt {
		// Nothing of ours is damaged: the file is.
		return api.Snapshot{}, api.Wrap(api.CodeInvalidRequest, err, "the file is not a whole export of a snapshot: %s", api.AsError(err).Message).
			WithHint("Export the snapshot again; a transfer that was cut off leaves a file like this.")
	}
	if err != nil {
		return api.Snapshot{}, err
	}
	return externalSnapshot(snap), nil
}
