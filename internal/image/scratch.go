package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// scratch is the private directory of one build. Its lock is held as long as
// the build lives, so that a sweep can tell it from what a crash left.
type scratch struct {
	dir  string
	lock *fileLock
	// born is the time the filesystem gave to the build's first file.
	// Everything that the build writes is not older.
	born time.Time
}

func (s *Store) newScratch(ctx context.Context) (*scratch, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	l, err := lock(ctx, s.lockPath())
	if err != nil {
		return nil, fmt.Errorf("begin build: %w", err)
	}
	defer l.unlock()
	dir, err := os.MkdirTemp(filepath.Join(s.dir, "tmp"), "build-")
	if err != nil {
		return nil, full(fmt.Errorf("begin build: %w", err))
	}
	own, ok, err := tryLock(filepath.Join(dir, "lock"))
	if err != nil || !ok {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("begin build: lock scratch directory: %w", err)
	}
	fi, err := own.f.Stat()
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "root"), 0o755)
	}
	if err != nil {
		own.unlock()
		os.RemoveAll(dir)
		return nil, full(fmt.Errorf("begin build: %w", err))
	}
	return &scratch{dir: dir, lock: own, born: fi.ModTime()}, nil
}

func (c *scratch) root() string  { return filepath.Join(c.dir, "root") }
func (c *scratch) image() string { return filepath.Join(c.dir, "image") }

// remove deletes the directory and lets the lock go.
func (c *scratch) remove() error {
	err := os.RemoveAll(c.dir)
	c.lock.unlock()
	return err
}

// Sweep removes what builds that ended without cleaning up have left. Builds
// that are running, in any process, are not touched.
func (s *Store) Sweep(ctx context.Context) error {
	if _, err := os.Stat(s.dir); gone(err) {
		return nil
	}
	stale, err := s.stale(ctx)
	for dir, l := range stale {
		if rerr := os.RemoveAll(dir); rerr != nil && err == nil {
			err = fmt.Errorf("sweep image store: %w", rerr)
		}
		s.log.InfoContext(ctx, "removed an unfinished image build", "dir", dir)
		l.unlock()
	}
	return err
}

// stale finds scratch directories that nobody holds and takes their locks. The
// store's lock keeps new ones from appearing half-made meanwhile.
func (s *Store) stale(ctx context.Context) (map[string]*fileLock, error) {
	l, err := lock(ctx, s.lockPath())
	if err != nil {
		return nil, fmt.Errorf("sweep image store: %w", err)
	}
	defer l.unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("sweep image store: %w", err)
	}
	for _, e := range entries {
		hex, isMeta := strings.CutSuffix(e.Name(), ".json")
		_, err := os.Stat(s.imagePath(hex))
		orphan := isMeta && hexPattern().MatchString(hex) && gone(err)
		if strings.HasPrefix(e.Name(), strings.TrimSuffix(tempPattern, "*")) || orphan {
			os.Remove(filepath.Join(s.dir, e.Name()))
		}
	}
	dirs, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if gone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("sweep image store: %w", err)
	}
	out := make(map[string]*fileLock)
	for _, d := range dirs {
		dir := filepath.Join(s.dir, "tmp", d.Name())
		own, ok, err := tryLock(filepath.Join(dir, "lock"))
		if gone(err) {
			continue // its maker finished a moment ago
		} else if err != nil {
			return out, fmt.Errorf("sweep image store: %w", err)
		}
		if ok {
			out[dir] = own
		}
	}
	return out, nil
}
