package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// smallFile is below which a file of a packed snapshot is taken out whole when it
// is opened; larger ones are served from the blob store as they are read.
const smallFile = 4 << 20

// hold keeps the bytes of a snapshot until drop.
func (s *Store) hold(ctx context.Context, id string) (*entry, error) {
	for {
		e, err := s.find(ctx, id)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		if !e.gone {
			e.refs++
			e.used = time.Now()
			s.mu.Unlock()
			return e, nil
		}
		s.mu.Unlock() // deleted since it was found: look again
	}
}

// drop ends a hold. The last one of a deleted snapshot removes it.
func (s *Store) drop(e *entry) error {
	s.mu.Lock()
	e.refs--
	last := e.gone && e.refs == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.step("delete.remove", func() error { return s.remove(e) })
}

// Open gives a snapshot to start machines from.
func (s *Store) Open(ctx context.Context, id string) (*Source, error) {
	e, err := s.hold(ctx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	raw, record, files := e.raw, e.record(), e.meta.Files
	s.mu.Unlock()
	var src *Source
	if raw {
		src, err = s.openRaw(e, files)
	} else {
		src, err = s.openPacked(ctx, e)
	}
	if err != nil {
		return nil, errors.Join(err, s.drop(e))
	}
	src.Record, src.files = record, files
	return src, nil
}

// openRaw serves the raw form. That its files have their sizes is all that is
// checked: it was written by this host, and synced.
func (s *Store) openRaw(e *entry, files []file) (*Source, error) {
	dir := s.path(rawDir, e.name())
	for _, f := range files {
		fi, err := os.Lstat(filepath.Join(dir, f.Name))
		if err != nil || !fi.Mode().IsRegular() || fi.Size() != f.Size {
			return nil, corrupt(e.id, "file %s on this host is damaged or missing", f.Name)
		}
	}
	now := time.Now()
	os.Chtimes(dir, now, now) // so that the next process knows what was used last
	return &Source{Dir: dir, close: sync.OnceValue(func() error { return s.drop(e) })}, nil
}

// openPacked serves the packed form. All sources of a snapshot share a reader.
func (s *Store) openPacked(ctx context.Context, e *entry) (*Source, error) {
	if err := e.opening.take(ctx); err != nil {
		return nil, err
	}
	defer e.opening.release()
	if e.remote == nil {
		r, err := s.openReader(ctx, e)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		e.remote = r
		s.mu.Unlock()
	}
	e.readers++
	return &Source{
		Dir:   s.path(localDir, e.name(), filesDir),
		Files: e.remote.served(),
		close: sync.OnceValue(func() error { return errors.Join(s.closePacked(e), s.drop(e)) }),
	}, nil
}

func (s *Store) closePacked(e *entry) error {
	e.opening <- struct{}{} // for moments: while there is a reader, no Open makes one
	defer e.opening.release()
	if e.readers--; e.readers > 0 {
		return nil
	}
	err := e.remote.close()
	s.mu.Lock()
	e.remote = nil
	s.mu.Unlock()
	return err
}

// openReader makes the reader of a packed snapshot and takes its small files out.
func (s *Store) openReader(ctx context.Context, e *entry) (*reader, error) {
	m, err := s.localManifest(ctx, e)
	if err != nil {
		return nil, err
	}
	r := s.newReader(ctx, e, m)
	if err := s.takeOut(e, r); err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.start()
	return r, nil
}

// localManifest gives the manifest from this host's copy, or else from the blob
// store.
func (s *Store) localManifest(ctx context.Context, e *entry) (*manifest, error) {
	if data, err := os.ReadFile(s.path(localDir, e.name(), manifestFile)); err == nil {
		if m, err := decodeManifest(data, s.keys, e.name()); err == nil {
			return m, nil
		}
	}
	if s.cfg.Blobs == nil {
		return nil, storeError(errors.New("this host has none"), "open snapshot %s", e.id)
	}
	m, data, err := s.fetchManifest(ctx, e.id, e.gen)
	if missing(err) {
		return nil, corrupt(e.id, "its manifest is missing")
	} else if err != nil {
		return nil, err
	}
	return m, s.replaceFile(s.path(localDir, e.name(), manifestFile), data, false)
}

// takeOut writes the small files of a packed snapshot to this host's disk, all
// at once. They stay for the next Open, until this process ends or they are evicted.
func (s *Store) takeOut(e *entry, r *reader) error {
	dir := s.path(localDir, e.name(), filesDir)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if s.cfg.Blobs == nil {
		return storeError(errors.New("this host has none"), "open snapshot %s", e.id)
	}
	tmp, err := os.MkdirTemp(s.path(tmpDir), "files-*")
	if err != nil {
		return diskError(err)
	}
	defer os.RemoveAll(tmp)
	var g errgroup.Group
	g.SetLimit(8)
	var bytes int64
	for i, f := range r.m.meta.Files {
		if f.Size >= smallFile {
			continue
		}
		bytes += f.Size
		g.Go(func() error {
			data := make([]byte, f.Size)
			if _, err := r.files[i].ReadAt(data, 0); err != nil && err != io.EOF {
				return err
			}
			return diskError(os.WriteFile(filepath.Join(tmp, f.Name), data, 0o600))
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("open snapshot %s: %w", e.id, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	s.mu.Lock()
	e.localBytes = bytes
	s.mu.Unlock()
	return nil
}
