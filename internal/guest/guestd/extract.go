//go:build linux

package guestd

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
)

// Bounds of an archive.
const (
	maxArchiveEntries = 1_000_000
	maxArchiveDepth   = 255
)

// unpack answers PUT /pandastack/fs/archive: the body is a tar, or a tar.gz, and
// becomes files of a directory.
func (s *Server) unpack(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	dir, owner, err := s.resolve(q.Get("path"), q.Get("username"))
	var body io.Reader
	if err == nil {
		body, err = uploadBody(w, r)
	}
	if err == nil {
		_, err = mkdirOwned(dir, owner)
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if err != nil {
		httpFail(w, err)
		return
	}
	defer root.Close()
	x := &extractor{ctx: r.Context(), root: root, uid: int(owner.uid), gid: int(owner.gid)}
	if err := x.extract(body); err != nil {
		httpFail(w, err)
		return
	}
	x.out.Path = strings.ToValidUTF8(dir, "\uFFFD")
	httpJSON(w, x.out)
}

// extractor makes files of an archive, whatever it says, below one directory.
// Every name is opened through that directory (os.Root), so that neither a name
// nor a link that is there already, or that the archive made before, leads out
// of it. Links are made as the archive has them, and never followed out. All
// belongs to one user, and set-id bits are dropped.
type extractor struct {
	ctx      context.Context
	root     *os.Root
	uid, gid int
	most     int64 // bytes altogether; 0 is what the disk holds
	seen     int
	out      api.Extracted
}

func (x *extractor) extract(body io.Reader) error {
	in := bufio.NewReaderSize(body, 64<<10)
	var r io.Reader = in
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return badArchive(err)
		}
		r = z
	}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			// What follows, a checksum above all, must have come too.
			if _, err := io.Copy(io.Discard, io.LimitReader(r, 1<<20)); err != nil {
				return badArchive(err)
			}
			return nil
		}
		if err != nil {
			return badArchive(err)
		}
		if x.seen++; x.seen > maxArchiveEntries {
			return invalid(fmt.Sprintf("the archive has more than %d entries", maxArchiveEntries))
		}
		if err := x.ctx.Err(); err != nil {
			return err
		}
		if err := x.entry(h, archive); err != nil {
			return err
		}
	}
}

func badArchive(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return bodyError(err)
	}
	return invalid("the body is no whole tar or tar.gz: " + printable(err.Error(), 200))
}

// entryName gives the path of an entry below the root; "." is the root itself.
func entryName(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || len(name) >= maxPath || strings.ContainsRune(name, 0) || !filepath.IsLocal(clean) ||
		strings.HasPrefix(name, "/") || strings.Count(clean, "/") >= maxArchiveDepth {
		return "", &fault{code: connect.CodeInvalidArgument, reason: "EINVAL",
			text: "the archive has a name that leads out of the directory, or is none: " + printable(name, 200)}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", &fault{code: connect.CodeInvalidArgument, reason: "EINVAL", text: "the archive has a name with ..: " + printable(name, 200)}
		}
	}
	return clean, nil
}

func (x *extractor) entry(h *tar.Header, content io.Reader) error {
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		err = x.dir(name, mode)
	case tar.TypeReg, '\x00', tar.TypeGNUSparse:
		err = x.file(name, mode, h.ModTime, content)
	case tar.TypeSymlink:
		err = x.link(name, func() error { return x.root.Symlink(h.Linkname, name) })
	case tar.TypeLink:
		var old string
		if old, err = entryName(h.Linkname); err == nil {
			err = x.link(name, func() error { return x.hardLink(old, name) })
		}
	case tar.TypeXGlobalHeader:
		return nil
	default:
		x.out.Skipped++
		return nil
	}
	if err != nil {
		return x.failure(name, err)
	}
	x.out.Files++
	return nil
}

// failure gives an error of one entry. What os.Root refuses has no number.
func (x *extractor) failure(name string, err error) error {
	var f *fault
	if errors.As(err, &f) {
		return err
	}
	if known := asFault(err); known.reason == "" {
		return &fault{code: connect.CodeInvalidArgument, reason: "EINVAL",
			text: "the archive leads out of the directory at " + printable(name, 200)}
	}
	return err
}

// parents makes the directories above a name.
func (x *extractor) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	if fi, err := x.root.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	if err := x.parents(dir); err != nil {
		return err
	}
	if err := x.root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return x.root.Lchown(dir, x.uid, x.gid)
}

func (x *extractor) dir(name string, mode fs.FileMode) error {
	if fi, err := x.root.Stat(name); err != nil || !fi.IsDir() {
		if err := x.parents(name + "/x"); err != nil {
			return err
		}
	}
	return x.root.Chmod(name, mode)
}

// clear makes room for what is not a directory: a file is never written
// through a link, or into one that has another name too.
func (x *extractor) clear(name string) error {
	if err := x.parents(name); err != nil {
		return err
	}
	fi, err := x.root.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return notRegular(printable(name, 200), fi)
	}
	return x.root.Remove(name)
}

func (x *extractor) file(name string, mode fs.FileMode, modified time.Time, content io.Reader) error {
	if err := x.clear(name); err != nil {
		return err
	}
	f, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = x.fill(f, content)
	if err == nil {
		err = errors.Join(f.Chown(x.uid, x.gid), f.Chmod(mode))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = x.root.Remove(name) // the first error is the one to tell
		return err
	}
	if !modified.IsZero() {
		_ = x.root.Chtimes(name, modified, modified) // a time that no filesystem has
	}
	return nil
}

func (x *extractor) fill(f *os.File, content io.Reader) error {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := content.Read(buf[:])
		if x.out.Bytes += int64(n); x.most > 0 && x.out.Bytes > x.most {
			return &fault{code: connect.CodeResourceExhausted, reason: "ENOSPC", text: "the archive holds too much"}
		}
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return x.ctx.Err()
		}
		if err != nil {
			return badArchive(err)
		}
		if err := x.ctx.Err(); err != nil {
			return err
		}
	}
}

func (x *extractor) link(name string, make func() error) error {
	if err := x.clear(name); err != nil {
		return err
	}
	if err := make(); err != nil {
		return err
	}
	return x.root.Lchown(name, x.uid, x.gid)
}

// hardLink gives a second name to a file that came before. What is no plain file
// of the directory has none.
func (x *extractor) hardLink(old, name string) error {
	fi, err := x.root.Lstat(old)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return &fault{code: connect.CodeInvalidArgument, reason: "EINVAL", text: "the archive has a hard link to what is no file: " + printable(old, 200)}
	}
	return x.root.Link(old, name)
}
