package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// untar unpacks an archive into a tree, keeping modes, owners, times, extended
// attributes and hard links.
//
// Names are taken beneath the root, also absolute ones and those that pass
// through a symbolic link of the archive, as inside a container; a name with
// ".." in it is refused, and so is a hard link to something that is not there.
// Device nodes below dev are left out, since every sandbox has its own /dev;
// elsewhere they are refused. A later entry replaces an earlier one, but not a
// directory.
func untar(ctx context.Context, t *tree, r io.Reader, limits Limits, seen func(bytes int64)) error {
	u := &untarrer{tree: t, limits: limits, buf: make([]byte, 256<<10), dirs: make(map[string]time.Time)}
	// The archive's own framing is bounded as well: it is at most a few
	// blocks per entry beside the content.
	tr := tar.NewReader(&cappedReader{r: &ctxReader{ctx, r}, left: limits.Bytes + int64(limits.Entries)*4096 + 1<<20})
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return archiveError(ctx, err)
		}
		if err := u.entry(ctx, h, tr); err != nil {
			return err
		}
		if seen != nil {
			seen(u.bytes)
		}
	}
	if u.entries == 0 {
		return invalid("the archive is empty")
	}
	for name, mtime := range u.dirs {
		if err := u.tree.setDirTime(name, mtime); err != nil {
			return entryError(name, err)
		}
	}
	return nil
}

type untarrer struct {
	tree    *tree
	limits  Limits
	buf     []byte
	entries int
	bytes   int64
	// Times of directories are set last: making files in them changes it.
	dirs map[string]time.Time
}

func (u *untarrer) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if u.entries++; u.entries > u.limits.Entries {
		return invalid("the archive has more than %d entries", u.limits.Entries)
	}
	if h.Size < 0 || h.Size > u.limits.Bytes-u.bytes {
		return invalid("the archive holds more than %d bytes: %q claims %d", u.limits.Bytes, shorten(h.Name), h.Size)
	}
	if !validID(h.Uid) || !validID(h.Gid) {
		return invalid("the archive's entry %q has an owner that does not exist: %d:%d", shorten(h.Name), h.Uid, h.Gid)
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, '\x00', '7': // 7: contiguous file
		err = u.file(ctx, name, h, content)
	case tar.TypeDir:
		err = u.dir(name, h)
	case tar.TypeSymlink:
		err = u.symlink(name, h)
	case tar.TypeLink:
		err = u.hardlink(name, h)
	case tar.TypeFifo:
		err = u.fifo(name, h)
	case tar.TypeChar, tar.TypeBlock:
		if !strings.HasPrefix(name, "/dev/") {
			return invalid("the archive has a device node outside /dev: %q", shorten(h.Name))
		}
	default:
		return invalid("the archive has an entry of unknown kind %q: %q", h.Typeflag, shorten(h.Name))
	}
	return entryError(h.Name, err)
}

// entryName gives the place of an entry below the root, as /a/b.
func entryName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", invalid("the archive has a name with a NUL byte: %q", shorten(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", invalid("the archive has a name that leads upwards: %q", shorten(name))
		}
	}
	return path.Clean("/" + name), nil
}

func (u *untarrer) file(ctx context.Context, name string, h *tar.Header, content io.Reader) error {
	f, err := u.tree.create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{content}, u.buf)
	u.bytes += n
	if err != nil {
		return archiveError(ctx, err)
	}
	if err := setAttributes(int(f.Fd()), h); err != nil {
		return err
	}
	dir, base, err := u.tree.parent(name)
	if err != nil {
		return err
	}
	return setTimes(dir, base, h.ModTime)
}

func (u *untarrer) dir(name string, h *tar.Header) error {
	if name != "/" {
		kept, err := u.mkdir(name)
		if err != nil || kept {
			return err
		}
	}
	u.dirs[name] = h.ModTime
	fd, err := u.tree.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setAttributes(fd, h)
}

// mkdir makes a directory, or takes the one that is there. A link to a
// directory is kept as it is: bin -> usr/bin stays when an archive also has
// bin/ as a directory.
func (u *untarrer) mkdir(name string) (kept bool, err error) {
	fd, base, err := u.tree.makeParent(name)
	if err != nil {
		return false, err
	}
	err = unix.Mkdirat(fd, base, 0o700)
	if !errors.Is(err, unix.EEXIST) {
		return false, err
	}
	var own unix.Stat_t
	if err := unix.Fstatat(fd, base, &own, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	if isDir(own) {
		return false, nil
	}
	if st, err := u.tree.stat(name); err == nil && isDir(st) {
		return true, nil
	}
	if err := u.tree.clear(fd, base); err != nil {
		return false, err
	}
	return false, unix.Mkdirat(fd, base, 0o700)
}

func isDir(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

func (u *untarrer) symlink(name string, h *tar.Header) error {
	fd, base, err := u.tree.makeParent(name)
	if err != nil {
		return err
	}
	if err := u.tree.clear(fd, base); err != nil {
		return err
	}
	// Its target is only text here; it is resolved inside the sandbox.
	if err := unix.Symlinkat(h.Linkname, fd, base); err != nil {
		return err
	}
	if err := unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return setTimes(fd, base, h.ModTime)
}

func (u *untarrer) hardlink(name string, h *tar.Header) error {
	target, err := entryName(h.Linkname)
	if err != nil {
		return err
	}
	if target == name {
		return nil
	}
	st, err := u.tree.lstat(target)
	if err != nil || isDir(st) {
		return invalid("the archive has a hard link %q to %q, which is not a file in it before that", shorten(h.Name), shorten(h.Linkname))
	}
	tfd, tbase, err := u.tree.parent(target)
	if err != nil {
		return err
	}
	if tfd, err = unix.FcntlInt(uintptr(tfd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	defer unix.Close(tfd)
	fd, base, err := u.tree.makeParent(name)
	if err != nil {
		return err
	}
	if err := u.tree.clear(fd, base); err != nil {
		return err
	}
	return unix.Linkat(tfd, tbase, fd, base, 0)
}

func (u *untarrer) fifo(name string, h *tar.Header) error {
	fd, base, err := u.tree.makeParent(name)
	if err != nil {
		return err
	}
	if err := u.tree.clear(fd, base); err != nil {
		return err
	}
	if err := unix.Mknodat(fd, base, unix.S_IFIFO|0o600, 0); err != nil {
		return err
	}
	if err := unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := unix.Fchmodat(fd, base, modeOf(h), 0); err != nil {
		return err
	}
	return setTimes(fd, base, h.ModTime)
}

// setAttributes sets owner, mode and extended attributes of an open file. The
// owner comes first: a change of owner clears set-id bits and capabilities.
func setAttributes(fd int, h *tar.Header) error {
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, modeOf(h)); err != nil {
		return err
	}
	return setXattrs(fd, h)
}

// setDirTime sets the time of what is still a directory at the end.
func (t *tree) setDirTime(name string, mtime time.Time) error {
	fd, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setTimes(fd, ".", mtime)
}

// validID reports whether n can be a user or group: the highest number means
// "leave it" to the kernel.
func validID(n int) bool { return n >= 0 && int64(n) < 1<<32-1 }

// modeOf gives the permission and set-id bits.
func modeOf(h *tar.Header) uint32 { return uint32(h.Mode) & 0o7777 }

// setTimes sets the modification time of a name in a directory.
func setTimes(dir int, base string, mtime time.Time) error {
	ts := unix.NsecToTimespec(max(mtime.UnixNano(), 0))
	return unix.UtimesNanoAt(dir, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

const paxXattr = "SCHILY.xattr."

// setXattrs sets the attributes that mean something inside a sandbox: those of
// users, and capabilities. Labels and attributes of the archive's host do not.
func setXattrs(fd int, h *tar.Header) error {
	// In a fixed order: it is the order they have in the image.
	for _, key := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok || (!strings.HasPrefix(name, "user.") && name != "security.capability") {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(h.PAXRecords[key]), 0); err != nil {
			return err
		}
	}
	return nil
}

// shorten keeps names of an attacker's length out of messages.
func shorten(name string) string {
	if len(name) > 120 {
		return name[:120] + "..."
	}
	return name
}

// entryError says which entry failed. Coded errors and those of the host's disk
// stay what they are.
func entryError(name string, err error) error {
	var coded *api.Error
	if err == nil || errors.As(err, &coded) || errors.As(full(err), &coded) {
		return full(err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return api.Wrap(api.CodeTemplateInvalid, err, "the archive's entry %q cannot be unpacked: %s", shorten(name), reason(err))
}

func reason(err error) string {
	var no unix.Errno
	switch errors.As(err, &no); no {
	case unix.EISDIR, unix.EEXIST:
		return "it replaces a directory"
	case unix.ENOENT:
		return "a symbolic link on its way leads nowhere"
	case unix.ENOTDIR:
		return "a part of its path is not a directory"
	case unix.ENAMETOOLONG:
		return "its name is too long"
	case unix.ELOOP:
		return "it passes through too many symbolic links"
	case 0:
		return err.Error()
	}
	return no.Error()
}
