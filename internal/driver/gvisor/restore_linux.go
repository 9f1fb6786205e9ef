package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/gvisor/pages"
)

// loadingFile is in a machine's directory while its memory comes from the process
// that started it.
const loadingFile = "loading"

// backgroundFrom is how large the memory of a local snapshot must be for the guest
// to run before all of it is there. Below, reading it all takes less time than what
// is needed for doing it in the background.
const backgroundFrom = 16 << 20

// restore brings a checked snapshot to life in a waiting sentry. The load is nil
// if nothing of the snapshot is needed any more.
func (s *sentry) restore(ctx context.Context, spec driver.Spec, meta snapshotMeta) (*load, error) {
	sources, err := openSources(spec, meta)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, src := range sources {
			if src.File != nil {
				src.File.Close()
			}
		}
	}()
	link, err := linkArgs(s.conf, spec.Network, true)
	if err != nil {
		return nil, err
	}
	defer closeAll(link.FilePayload.Files)
	if err := call(ctx, s.socket, boot.ContMgrSetNetworkArgs, link, link.FilePayload.Files); err != nil {
		return nil, fmt.Errorf("set network: %w", err)
	}
	if !remote(sources) && meta.Files[checkpointfiles.PagesFileName] < backgroundFrom {
		return nil, s.restoreNow(ctx, sources)
	}
	return s.restoreBehind(ctx, sources)
}

// restoreNow reads the whole memory before the guest runs.
func (s *sentry) restoreNow(ctx context.Context, sources []pages.Source) error {
	opts := boot.RestoreOpts{HavePagesFile: true}
	for _, src := range sources {
		opts.FilePayload.Files = append(opts.FilePayload.Files, src.File)
	}
	if err := call(ctx, s.socket, boot.ContMgrRestore, &opts, opts.FilePayload.Files); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// restoreBehind lets the guest run while its memory is read behind its back.
func (s *sentry) restoreBehind(ctx context.Context, sources []pages.Source) (_ *load, err error) {
	session, sinks, files, client, err := pages.Offer(sources)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	defer closeAll(files) // those of sources as well, whose second close does nothing
	l := &load{session: session, done: make(chan struct{})}
	defer func() {
		if err != nil {
			session.Close()
		}
	}()
	if remote(sources) {
		l.mark = filepath.Join(s.dir, loadingFile)
		if err := os.WriteFile(l.mark, nil, 0o600); err != nil {
			return nil, err
		}
	}
	if err := s.equip(ctx, sinks, files); err != nil {
		return nil, err
	}
	opts := boot.RestoreOpts{UseCheckpointGofer: true, Background: true}
	opts.FilePayload.Files = []*os.File{client}
	if err := call(ctx, s.socket, boot.ContMgrRestore, &opts, opts.FilePayload.Files); err != nil {
		if lost := session.Err(); lost != nil {
			return nil, lostError(lost)
		}
		return nil, fmt.Errorf("restore: %w", err)
	}
	return l, nil
}

// equip makes something of ours inside a sentry, which has registered it there
// under the name of a sink (see package pages).
func (s *sentry) equip(ctx context.Context, sinks []seccheck.SinkConfig, files []*os.File) error {
	args := boot.CreateTraceSessionArgs{
		Config: seccheck.SessionConfig{Name: seccheck.DefaultSessionName, Sinks: sinks},
		Force:  true, // in place of what was made before, which has done its work
	}
	if err := call(ctx, s.socket, boot.ContMgrCreateTraceSession, &args, files); err != nil {
		return fmt.Errorf("equip the runtime: %w", err)
	}
	return nil
}

// openSources finds every file of a checkpoint, in the order in which gVisor's
// calls want them.
func openSources(spec driver.Spec, meta snapshotMeta) ([]pages.Source, error) {
	var sources []pages.Source
	for _, name := range checkpointNames {
		src := pages.Source{Name: name, Size: meta.Files[name]}
		f, err := os.Open(filepath.Join(spec.Snapshot, name))
		switch {
		case err == nil:
			src.File = f
		case errors.Is(err, os.ErrNotExist) && spec.Remote[name] != nil:
			src.At = spec.Remote[name]
		default:
			for _, s := range sources {
				s.File.Close()
			}
			return nil, api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot is incomplete")
		}
		sources = append(sources, src)
	}
	return sources, nil
}

func remote(sources []pages.Source) bool {
	for _, src := range sources {
		if src.At != nil {
			return true
		}
	}
	return false
}

// maxMeta bounds the description of a snapshot.
const maxMeta = 1 << 20

// readMeta reads the description of a snapshot, wherever it is.
func readMeta(spec driver.Spec) (meta snapshotMeta, err error) {
	b, err := os.ReadFile(filepath.Join(spec.Snapshot, metaFile))
	if at := spec.Remote[metaFile]; errors.Is(err, os.ErrNotExist) && at != nil {
		b, err = io.ReadAll(io.NewSectionReader(at, 0, maxMeta))
	}
	if err != nil {
		return meta, api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot is incomplete")
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return meta, api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot's description is damaged")
	}
	return meta, nil
}

// lostError says that a snapshot went away under a machine.
func lostError(err error) error {
	var coded *api.Error
	if errors.As(err, &coded) {
		return coded
	}
	return api.Wrap(api.CodeBootFailed, err, "the sandbox's memory could not be read from its snapshot")
}
