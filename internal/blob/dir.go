package blob

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
)

// tempDir holds what is being put, on the filesystem where it will be. Its name
// cannot be part of a key.
const tempDir = ".tmp~"

// Dir is a Store in a directory: each object is a file named by its key. Several
// processes may have it open.
//
// A Put writes a file in a hidden directory, makes it durable and then gives it
// its name. While it writes it holds a lock on the file, so that whoever opens
// the store next can tell the leavings of a process that died from the work of
// one that lives.
type Dir struct {
	path string
	root *os.Root
}

var _ Store = (*Dir)(nil)

// NewDir opens the store in a directory, which it makes if it is not there, and
// removes what Puts of dead processes left in it.
func NewDir(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, api.Wrap(api.CodeSnapshotStore, err, "the blob store's directory %s has no absolute path", path)
	}
	if err := makeDir(path); err != nil {
		return nil, api.Wrap(api.CodeSnapshotStore, err, "the blob store's directory %s cannot be made", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, api.Wrap(api.CodeSnapshotStore, err, "the blob store's directory %s cannot be opened", path)
	}
	d := &Dir{path: path, root: root}
	if err := d.sweep(); err != nil {
		root.Close()
		return nil, d.failure("be opened", err)
	}
	return d, nil
}

// makeDir makes a directory and those it is in, durably.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

// sweep removes temporary files that nobody holds.
func (d *Dir) sweep() error {
	if err := d.root.Mkdir(tempDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	names, err := d.names(tempDir)
	if err != nil {
		return err
	}
	for _, e := range names {
		name := path.Join(tempDir, e.Name())
		f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its Put has just ended
		}
		if err != nil {
			return err
		}
		if locked, err := lock(f); err != nil {
			f.Close()
			return err
		} else if locked {
			_ = d.root.Remove(name) // another sweep may have been here
		}
		f.Close()
	}
	return nil
}

// lock takes the lock of a file until it is closed, or reports that another
// process has it.
func lock(f *os.File) (bool, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			failed = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
			if failed != syscall.EINTR {
				return
			}
		}
	})
	if failed == syscall.EWOULDBLOCK {
		return false, err
	}
	return err == nil && failed == nil, cmp.Or(err, failed)
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	src := newSource(ctx, r, size)
	f, name, err := d.temp()
	if err != nil {
		return d.failure("take "+key, err)
	}
	defer f.Close()
	err = write(f, src)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = d.publish(name, key)
	}
	if err == nil {
		return nil
	}
	_ = d.root.Remove(name) // a sweep will, if this cannot
	if err := cmp.Or(src.failed(key), ctx.Err()); err != nil {
		return err
	}
	return d.failure("take "+key, err)
}

// temp makes a file that is locked. A sweep may come between its making and its
// locking: then another is made.
func (d *Dir) temp() (*os.File, string, error) {
	for {
		name := path.Join(tempDir, rand.Text())
		f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, "", err
		}
		locked, err := lock(f)
		if err != nil {
			f.Close()
			return nil, "", errors.Join(err, d.root.Remove(name))
		}
		if _, err := d.root.Lstat(name); err == nil && locked {
			return f, name, nil
		}
		f.Close()
	}
}

func write(f *os.File, src *source) error {
	// Without the file's own ReadFrom, which would copy in smaller pieces.
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, src, make([]byte, 256<<10)); err != nil {
		return err
	}
	return f.Sync()
}

// publish gives a whole and durable file the name of its key, and makes that
// durable. Directories on the way may be removed meanwhile, by a Delete that
// found them empty.
func (d *Dir) publish(name, key string) error {
	var err error
	for range 1000 {
		if err = d.root.MkdirAll(path.Dir(key), 0o700); err == nil {
			err = d.root.Rename(name, key)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		d.prune(path.Dir(key))
		return err
	}
	return d.sync(path.Dir(key))
}

// sync makes the names in a directory and in those it is in durable. One that is
// gone by now went with all that was in it.
func (d *Dir) sync(dir string) error {
	for {
		f, err := d.root.Open(dir)
		if err == nil {
			err = cmp.Or(f.Sync(), f.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

// prune removes a directory that is empty, and those it leaves empty.
func (d *Dir) prune(dir string) {
	for dir != "." {
		f, err := d.root.Lstat(dir)
		if err != nil || !f.IsDir() || d.root.Remove(dir) != nil {
			return
		}
		dir = path.Dir(dir)
	}
}

// open opens an object. A directory is none, and neither is what is below a file.
func (d *Dir) open(ctx context.Context, key string) (*os.File, fs.FileInfo, error) {
	if err := checkKey(key); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	f, err := d.root.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a foreign pipe may not hold us up
	if err != nil {
		return nil, nil, d.reading(key, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, nil, d.reading(key, err)
	}
	return f, info, nil
}

// ReadAt implements Store.
func (d *Dir) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	f, _, err := d.open(ctx, key)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := readAt(f, key, p, off)
	if err != nil && err != io.EOF && api.CodeOf(err) == api.CodeInternal {
		err = d.reading(key, err)
	}
	return n, err
}

// Get implements Store.
func (d *Dir) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	f, _, err := d.open(ctx, key)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Stat implements Store.
func (d *Dir) Stat(ctx context.Context, key string) (Info, error) {
	f, info, err := d.open(ctx, key)
	if err != nil {
		return Info{}, err
	}
	f.Close()
	return Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// Delete implements Store.
func (d *Dir) Delete(ctx context.Context, key string) error {
	_, err := d.Stat(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.root.Remove(key); errors.Is(err, fs.ErrNotExist) {
		return nil // another was quicker
	} else if err != nil {
		return d.failure("delete "+key, err)
	}
	if err := d.sync(path.Dir(key)); err != nil {
		return d.failure("delete "+key, err)
	}
	d.prune(path.Dir(key))
	return nil
}

// List implements Store.
func (d *Dir) List(ctx context.Context, prefix string, each func(Info) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !validPrefix(prefix) {
		return nil // of no key
	}
	dir, last := splitPrefix(prefix)
	return d.walk(ctx, dir, last, each)
}

// walk visits the objects of a directory whose next part begins with last.
func (d *Dir) walk(ctx context.Context, dir, last string, each func(Info) error) error {
	entries, err := d.names(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return d.failure("be listed", err)
	}
	for _, e := range entries {
		key := path.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), last) || !ValidKey(key) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.IsDir() {
			err = d.walk(ctx, key, "", each)
		} else if e.Type().IsRegular() {
			err = d.visit(key, each)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) visit(key string, each func(Info) error) error {
	info, err := d.root.Lstat(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return d.failure("be listed", err)
	}
	return each(Info{Key: key, Size: info.Size(), Modified: info.ModTime()})
}

// names gives what is in a directory in the order of keys: a directory stands
// where its name and a slash do.
func (d *Dir) names(dir string) ([]fs.DirEntry, error) {
	f, err := d.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	order := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(order(a), order(b)) })
	return entries, nil
}

// reading gives a code to an error of an object that is read.
func (d *Dir) reading(key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return missing(key)
	}
	return d.failure("give "+key, err)
}

// failure gives a code to an error of the filesystem.
func (d *Dir) failure(what string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return api.Wrap(api.CodeSnapshotStoreFull, err, "the blob store %s cannot %s: no space left", d.path, what)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return api.Wrap(api.CodeInvalidRequest, err, "the blob store %s cannot %s: another key is below it or above it", d.path, what)
	}
	return api.Wrap(api.CodeSnapshotStore, err, "the blob store %s cannot %s", d.path, what)
}

// URL implements Store.
func (d *Dir) URL() string { return "dir:" + d.path }

// Close implements Store. Objects that are being read go on.
func (d *Dir) Close() error {
	if err := d.root.Close(); err != nil {
		return fmt.Errorf("closing the blob store: %w", err)
	}
	return nil
}
