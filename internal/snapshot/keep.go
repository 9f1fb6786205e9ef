package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/api"
)

// Stage names the directory that a driver writes the snapshot id to.
func (s *Store) Stage(id string) string { return s.path(stagingDir, id) }

// Discard removes a staged directory, whether or not it exists.
func (s *Store) Discard(id string) error {
	if !validID(id) {
		return nil
	}
	if err := s.removeTree(s.Stage(id)); err != nil {
		return fmt.Errorf("discard the staged snapshot %s: %w", id, err)
	}
	return nil
}

// Keep makes the staged directory of info.ID a snapshot.
func (s *Store) Keep(ctx context.Context, info Info) (Record, error) {
	if !validID(info.ID) {
		return Record{}, api.Errorf(api.CodeInvalidRequest, "%q is no id of a snapshot", info.ID)
	}
	gen, err := s.reserve(info.ID)
	if err != nil {
		return Record{}, err
	}
	e, err := s.keep(ctx, info, gen)
	s.mu.Lock()
	delete(s.keeping, info.ID)
	if err == nil && gen <= s.deleted[info.ID] {
		err = notFound(info.ID) // deleted meanwhile
	}
	if err != nil {
		s.mu.Unlock()
		if e != nil {
			err = errors.Join(err, s.remove(e))
		}
		return Record{}, fmt.Errorf("keep snapshot %s: %w", info.ID, err)
	}
	s.snaps[info.ID] = e
	r := e.record()
	s.mu.Unlock()
	select {
	case s.kept <- struct{}{}:
	default:
	}
	return r, nil
}

// reserve holds an id for the caller and gives its generation, which is younger
// than any that was deleted even where the clock went back.
func (s *Store) reserve(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snaps[id] != nil || s.keeping[id] {
		return "", api.Errorf(api.CodeSnapshotExists, "snapshot %s exists", id)
	}
	gen := newGeneration()
	if old := s.deleted[id]; gen <= old {
		var at uint64
		fmt.Sscanf(generationTime(old), "%016x", &at)
		gen = generationAt(time.Unix(0, int64(at)+1)) + "0000"
	}
	s.keeping[id] = true
	return gen, nil
}

func (s *Store) keep(ctx context.Context, info Info, gen string) (*entry, error) {
	stage := s.Stage(info.ID)
	files, err := stagedFiles(stage)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := meta{Version: metaVersion, Info: info, Files: files}
	if err := s.step("keep.record", func() error { return writeStagedRecord(stage, m) }); err != nil {
		return nil, err
	}
	if err := s.step("keep.sync", func() error { return syncAll(stage, files) }); err != nil {
		return nil, err
	}
	e := &entry{id: info.ID, gen: gen, meta: m, raw: true, kept: time.Now(), opening: newLock()}
	e.used = e.kept
	if e.rawBytes, _, err = measure(stage); err != nil {
		return nil, err
	}
	dir := s.path(rawDir, e.name())
	err = s.step("keep.rename", func() error {
		if err := os.Rename(stage, dir); err != nil {
			return err
		}
		return syncPath(s.path(rawDir))
	})
	if err != nil {
		s.removeTree(dir)
		return nil, diskError(err)
	}
	return e, nil
}

// stagedFiles lists what a driver wrote: regular files and nothing else.
func stagedFiles(stage string) ([]file, error) {
	list, err := os.ReadDir(stage)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range list {
		if e.Name() == recordFile {
			continue // of an earlier try
		}
		fi, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("%q is no regular file", e.Name())
		}
		files = append(files, file{e.Name(), fi.Size()})
	}
	return files, checkFiles(files)
}

func writeStagedRecord(stage string, m meta) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	return diskError(os.WriteFile(filepath.Join(stage, recordFile), data, 0o600))
}

// syncAll brings the files and their names to the disk, all at the same time:
// the filesystem then commits them together.
func syncAll(stage string, files []file) error {
	var g errgroup.Group
	g.SetLimit(64)
	g.Go(func() error { return syncPath(stage) })
	g.Go(func() error { return syncPath(filepath.Join(stage, recordFile)) })
	for _, f := range files {
		g.Go(func() error { return syncPath(filepath.Join(stage, f.Name)) })
	}
	return diskError(g.Wait())
}
