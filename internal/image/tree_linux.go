package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a directory that stands for the root of another system. Its content
// is not trusted: every name is resolved by the kernel as if the process had
// changed its root there, so that neither "..", nor an absolute name, nor a
// symbolic link leads out, and no mount within it is crossed.
type tree struct {
	fd int
	// The directory that was resolved last; entries of an archive come in
	// runs from one directory.
	lastDir string
	lastFD  int
}

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &tree{fd: fd, lastFD: -1}, nil
}

func (t *tree) close() {
	t.forget()
	unix.Close(t.fd)
}

func (t *tree) forget() {
	if t.lastFD >= 0 {
		unix.Close(t.lastFD)
	}
	t.lastDir, t.lastFD = "", -1
}

// open resolves a name, following symbolic links within the tree.
func (t *tree) open(name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(t.fd, name, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// parent gives the directory that holds name, and name's last component. The
// descriptor belongs to the tree and is good until the next call.
func (t *tree) parent(name string) (int, string, error) {
	dir, base := path.Split(path.Clean("/" + name))
	if base == "" {
		return 0, "", unix.EEXIST // the root itself
	}
	if dir == t.lastDir && t.lastFD >= 0 {
		return t.lastFD, base, nil
	}
	fd, err := t.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return 0, "", err
	}
	t.forget()
	t.lastDir, t.lastFD = dir, fd
	return fd, base, nil
}

// makeParent is parent for a directory that may have to be made first.
func (t *tree) makeParent(name string) (int, string, error) {
	fd, base, err := t.parent(name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, base, err
	}
	if err := t.mkdirAll(path.Dir(path.Clean("/"+name)), 0o755); err != nil {
		return 0, "", err
	}
	return t.parent(name)
}

// mkdirAll makes a directory and those above it that are missing. One that
// exists stays as it is.
func (t *tree) mkdirAll(name string, mode uint32) error {
	name = path.Clean("/" + name)
	if name == "/" {
		return nil
	}
	if fd, err := t.open(name, unix.O_PATH|unix.O_DIRECTORY); err == nil {
		return unix.Close(fd)
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := t.mkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	fd, base, err := t.parent(name)
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(fd, base, mode); errors.Is(err, unix.EEXIST) {
		return unix.ENOENT // a link that leads nowhere
	} else if err != nil {
		return err
	}
	return unix.Fchmodat(fd, base, mode, 0)
}

// lstat looks at a name without following its last component.
func (t *tree) lstat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, base, err := t.parent(name)
	if err == nil {
		err = unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	return st, err
}

// stat looks at what a name leads to.
func (t *tree) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := t.open(name, unix.O_PATH)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

func (t *tree) exists(name string) bool {
	_, err := t.stat(name)
	return err == nil
}

// readFile reads a regular file of up to limit bytes.
func (t *tree) readFile(name string, limit int64) ([]byte, error) {
	// O_NONBLOCK: a FIFO in place of the file must not hold the build up.
	fd, err := t.open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, invalid("/%s of the root filesystem is not a regular file", strings.TrimPrefix(name, "/"))
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, invalid("/%s of the root filesystem has more than %d bytes", strings.TrimPrefix(name, "/"), limit)
	}
	return b, err
}

// owner is who has a file and what may be done with it.
type owner struct {
	uid, gid int
	mode     uint32
}

// writeFile puts a new regular file in place of what has the name; a symbolic
// link is replaced, not followed.
func (t *tree) writeFile(name string, data []byte, o owner) error {
	f, err := t.create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	fd := int(f.Fd())
	return errors.Join(err, unix.Fchown(fd, o.uid, o.gid), unix.Fchmod(fd, o.mode), f.Close())
}

// create opens a new regular file for writing.
func (t *tree) create(name string) (*os.File, error) {
	fd, base, err := t.makeParent(name)
	if err != nil {
		return nil, err
	}
	if err := t.clear(fd, base); err != nil {
		return nil, err
	}
	f, err := unix.Openat(fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(f), name), nil
}

// clear removes what has a name, unless it is a directory. What it removes may
// have been a link on the way to the remembered directory, so the next name is
// resolved anew.
func (t *tree) clear(dir int, base string) error {
	err := unix.Unlinkat(dir, base, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	t.lastDir = ""
	return err
}
