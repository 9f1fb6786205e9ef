//go:build linux

package guestd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"connectrpc.com/connect"
)

// putFile answers PUT /pandastack/fs/file, which writes a file in ways that the
// envd protocol has none of: at its end (append), from an offset that it has
// grown to (offset), or all at once (atomic).
func (s *Server) putFile(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	path, owner, err := s.resolve(q.Get("path"), q.Get("username"))
	if err == nil && q.Get("path") == "" {
		err = invalid("the path is empty")
	}
	if err == nil {
		err = s.putTail(w, r, path, owner)
	}
	if err != nil {
		httpFail(w, err)
		return
	}
	fi, err := os.Stat(path)
	if err != nil {
		httpFail(w, err)
		return
	}
	httpJSON(w, s.fileInfo(path, fi))
}

func (s *Server) putTail(w http.ResponseWriter, r *http.Request, path string, owner user) error {
	q := r.URL.Query()
	body, err := uploadBody(w, r)
	if err != nil {
		return err
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return notRegular(path, fi)
	}
	if _, err := mkdirOwned(filepath.Dir(path), owner); err != nil {
		return err
	}
	if q.Get("atomic") == "1" {
		return s.putWhole(path, owner, func(f *os.File) error { return copyInto(f, body) })
	}
	offset := int64(-1)
	if text := q.Get("offset"); text != "" {
		if offset, err = strconv.ParseInt(text, 10, 64); err != nil || offset < 0 {
			return invalid("the offset is not a number of bytes")
		}
	}
	f, fresh, err := openTail(path, offset)
	if err != nil {
		return err
	}
	if fresh {
		err = f.Chown(int(owner.uid), int(owner.gid))
	}
	if err == nil {
		err = copyInto(f, body)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func notRegular(path string, fi fs.FileInfo) error {
	reason, what := "EINVAL", "not a regular file"
	if fi.IsDir() {
		reason, what = "EISDIR", "a directory"
	}
	return &fault{code: connect.CodeInvalidArgument, reason: reason, text: fmt.Sprintf("path '%s' is %s", path, what)}
}

// openTail opens a file, made if need be, to write at its end, or at an offset
// that is not behind its end, where it is cut. Both keep what had come when a
// client vanishes: it goes on from there.
func openTail(path string, offset int64) (f *os.File, fresh bool, err error) {
	flags := os.O_WRONLY | syscall.O_NONBLOCK
	if offset < 0 {
		flags |= os.O_APPEND
	}
	f, err = os.OpenFile(path, flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		fresh = true
		f, err = os.OpenFile(path, flags|os.O_CREATE, 0o666)
	}
	if err != nil || offset < 0 {
		return f, fresh, err
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case fi.Size() < offset:
		err = invalid(fmt.Sprintf("the file has %d bytes, fewer than the offset %d", fi.Size(), offset))
	default:
		if err = f.Truncate(offset); err == nil {
			_, err = f.Seek(offset, 0)
		}
	}
	if err != nil {
		f.Close()
		if fresh {
			_ = os.Remove(path) // the first error is the one to tell
		}
		return nil, false, err
	}
	return f, fresh, nil
}

// putWhole replaces a file at once. A file that was there keeps its mode and its
// owner, and a link to it stays one.
func (s *Server) putWhole(path string, owner user, fill func(*os.File) error) error {
	mode := fs.FileMode(0o666) &^ 0o022
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if fi, err := os.Stat(path); err == nil {
		mode = fi.Mode().Perm()
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			owner.uid, owner.gid = st.Uid, st.Gid
		}
	}
	return replaceFile(path, mode, owner, true, fill)
}

// replaceFile makes a file beside its place, fills it and puts it there. If it
// fails, what was there is as before, and nothing is left beside it.
func replaceFile(path string, mode fs.FileMode, owner user, overwrite bool, fill func(*os.File) error) error {
	if fi, err := os.Lstat(path); err == nil {
		if fi.IsDir() {
			return notRegular(path, fi)
		}
		if !overwrite {
			return &fault{code: connect.CodeAlreadyExists, reason: "EEXIST", text: fmt.Sprintf("path '%s' already exists", path)}
		}
	}
	var raw [8]byte
	rand.Read(raw[:])
	temp := filepath.Join(filepath.Dir(path), ".pandastack-"+hex.EncodeToString(raw[:])+".tmp")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Chown(int(owner.uid), int(owner.gid))
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // the first error is the one to tell
	}
	return err
}
