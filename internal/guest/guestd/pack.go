//go:build linux

package guestd

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

// pack answers GET /pandastack/fs/archive with a directory, or one file, as a
// tar.gz stream. An archive that is not whole is cut off, so that its reader
// sees it.
func (s *Server) pack(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	root, _, err := s.resolve(q.Get("path"), q.Get("username"))
	if err == nil {
		_, err = os.Stat(root)
		if errors.Is(err, os.ErrNotExist) {
			err = missing(root)
		}
	}
	if err != nil {
		httpFail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(w)
	a := &packer{ctx: r.Context(), s: s, tar: tar.NewWriter(z)}
	walk := &walker{ctx: r.Context(), visit: a.add}
	if err = walk.walk(root); err == nil {
		if err = a.tar.Close(); err == nil {
			err = z.Close()
		}
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

type packer struct {
	ctx context.Context
	s   *Server
	tar *tar.Writer
}

// add puts one file into the archive. What is neither file, directory nor link,
// and what cannot be read any more, is left out.
func (a *packer) add(path, rel string, d fs.DirEntry) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	target := ""
	switch {
	case fi.IsDir(), fi.Mode().IsRegular():
	case fi.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(path); err != nil {
			return nil
		}
	default:
		return nil
	}
	h, err := tar.FileInfoHeader(fi, target)
	if err != nil {
		return nil
	}
	h.Name = filepath.ToSlash(rel)
	if fi.IsDir() {
		h.Name += "/"
	}
	h.Format = tar.FormatPAX
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		// The names of this machine, not of where FileInfoHeader looks them up.
		u := a.s.users.get()
		h.Uname, h.Gname = u.owner(st.Uid), u.groupName(st.Gid)
	}
	if !fi.Mode().IsRegular() {
		return a.tar.WriteHeader(h)
	}
	return a.content(path, h)
}

// content writes a file with as many bytes as its header says. One that grows
// meanwhile is cut, and one that shrinks ends the archive.
func (a *packer) content(path string, h *tar.Header) error {
	f, fi, err := openRegular(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	h.Size = fi.Size()
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{a.tar}, struct{ io.Reader }{io.LimitReader(f, h.Size)}, buf[:])
	if err == nil && n < h.Size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, a.ctx.Err())
}
