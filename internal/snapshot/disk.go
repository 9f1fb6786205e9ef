package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// diskError gives a full disk its code.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return api.Wrap(api.CodeSnapshotStoreFull, err, "the disk for snapshots is full")
	}
	return err
}

// storeError makes sure that a failure of the blob store has a code, and says
// what was being done. An object that does not exist stays recognisable.
func storeError(err error, format string, args ...any) error {
	if err == nil || errors.Is(err, blob.ErrNotFound) || errors.Is(err, context.Canceled) {
		return err
	}
	if api.CodeOf(err) == api.CodeInternal {
		return api.Wrap(api.CodeSnapshotStore, err, "the blob store does not answer: "+format, args...)
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// corrupt is the error for bytes that are not what was stored.
func corrupt(id, format string, args ...any) error {
	return api.Errorf(api.CodeSnapshotCorrupt, "snapshot %s: "+format, append([]any{id}, args...)...)
}

// setAside renames a directory, if it exists, to where the next Open removes it.
func (s *Store) setAside(path string) (string, error) {
	out := s.path(tmpDir, "removed-"+rand.Text())
	if err := os.Rename(path, out); !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	return out, nil
}

// removeTree removes a directory so that no half of it is ever seen in its place.
func (s *Store) removeTree(path string) error {
	out, err := s.setAside(path)
	if err != nil {
		return err
	}
	return os.RemoveAll(out)
}

func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func removeContent(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile writes a file that readers see whole or not at all.
func (s *Store) replaceFile(path string, data []byte, durable bool) error {
	f, err := os.CreateTemp(s.path(tmpDir), "file-*")
	if err != nil {
		return diskError(err)
	}
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return diskError(err)
	}
	if !durable {
		return nil
	}
	return diskError(syncPath(filepath.Dir(path)))
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// measure gives the room that a directory's files take and when it was last used.
func measure(dir string) (int64, time.Time, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return 0, time.Time{}, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0, time.Time{}, err
	}
	var n int64
	for _, e := range list {
		fi, err := e.Info()
		if err != nil {
			return 0, time.Time{}, err
		}
		n += allocated(fi)
	}
	return n, st.ModTime(), nil
}

// allocated is what a file takes of the disk; holes take nothing.
func allocated(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return fi.Size()
}
