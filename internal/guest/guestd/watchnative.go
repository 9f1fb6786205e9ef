//go:build linux

package guestd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// watchPing is the pause after which a silent watch sends an empty line, which
// shows whether its client is still there.
const watchPing = 20 * time.Second

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// changes follows a directory by the kernel's own events rather than through a
// library: a directory that is moved within the tree must be followed under its
// new name, and every loss must be told.
type changes struct {
	root  string
	deep  bool
	file  *os.File
	fd    int
	paths map[int32]string // of watched directories; empty of one that was moved away
	json  *json.Encoder
	rc    *http.ResponseController
	err   error // of the first line that could not be sent
}

// watchNative answers GET /pandastack/fs/watch: one api.FileEvent in JSON per
// line, the first of them empty once the watch stands. It reports rather twice
// than not at all, and where events may be lost it says so. It ends when the
// directory is gone.
func (s *Server) watchNative(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	root, _, err := s.resolve(q.Get("path"), q.Get("username"))
	if err == nil {
		err = isDir(root)
	}
	var c *changes
	if err == nil {
		c, err = newChanges(root, q.Get("recursive") == "1")
	}
	if err != nil {
		httpFail(w, err)
		return
	}
	defer c.file.Close()
	defer context.AfterFunc(r.Context(), func() { _ = c.file.SetReadDeadline(time.Unix(1, 0)) })()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	c.json, c.rc = json.NewEncoder(w), http.NewResponseController(w)
	c.line(struct{}{})
	c.flush()
	if c.run(r.Context()) != nil {
		panic(http.ErrAbortHandler) // only the directory's end is an end
	}
}

func newChanges(root string, deep bool) (*changes, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	c := &changes{root: root, deep: deep, file: os.NewFile(uintptr(fd), "inotify"), fd: fd, paths: map[int32]string{}}
	wd, err := unix.InotifyAddWatch(fd, root, watchMask)
	if err == nil {
		c.paths[int32(wd)] = root
		err = c.below(root, nil)
	}
	if err != nil {
		c.file.Close()
		return nil, err
	}
	return c, nil
}

// below watches the directories within dir, if they are wanted, and reports
// what it finds. An error is that something which is still there is not watched.
func (c *changes) below(dir string, found func(path string)) error {
	if !c.deep {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return unlessGone(err)
	}
	var first error
	for _, d := range entries {
		path := filepath.Join(dir, d.Name())
		if found != nil {
			found(path)
		}
		if d.IsDir() && !systemDirs[path] {
			if err := c.add(path, found); first == nil {
				first = err
			}
		}
	}
	return first
}

// add watches a directory that has come, and what is in it. One that is watched
// already is known by its new name.
func (c *changes) add(dir string, found func(path string)) error {
	wd, err := unix.InotifyAddWatch(c.fd, dir, watchMask|unix.IN_DONT_FOLLOW)
	if err != nil {
		return unlessGone(err)
	}
	c.paths[int32(wd)] = dir
	return c.below(dir, found)
}

func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// run sends events until the client leaves; nil is that the directory is gone.
func (c *changes) run(ctx context.Context) error {
	buf := make([]byte, 64<<10)
	for c.err == nil {
		_ = c.file.SetReadDeadline(time.Now().Add(watchPing)) // the file is open and has a poller
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := c.file.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.line(struct{}{})
		case err != nil:
			return err
		}
		for rest := buf[:max(n, 0)]; len(rest) >= unix.SizeofInotifyEvent; {
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if size > len(rest) {
				break
			}
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:size]), "\x00")
			if gone := c.event(int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:]), name); gone {
				c.flush()
				return c.err
			}
			rest = rest[size:]
		}
		c.flush()
	}
	return c.err
}

// event reports one event of the kernel and keeps up what is watched. It says
// whether the watched directory itself is gone.
func (c *changes) event(wd int32, mask uint32, name string) (gone bool) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		c.lost()
		return false
	}
	dir, known := c.paths[wd]
	switch {
	case mask&unix.IN_IGNORED != 0:
		delete(c.paths, wd)
		return dir == c.root
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		if dir == c.root {
			c.send(api.FileRemove, dir)
		}
		return dir == c.root
	case known && dir == "":
		_, _ = unix.InotifyRmWatch(c.fd, uint32(wd)) // it left the tree
		return false
	case !known || name == "" && dir != c.root:
		return false // its directory reports the same
	}
	path := filepath.Join(dir, name)
	c.send(typeOf(mask), path)
	if mask&unix.IN_ISDIR == 0 || !c.deep || name == "" {
		return false
	}
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		c.moved(path)
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		// What came before this watch is reported as it is found, and perhaps again.
		if c.add(path, func(found string) { c.send(api.FileCreate, found) }) != nil {
			c.lost()
		}
	}
	return false
}

func typeOf(mask uint32) api.FileEventType {
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return api.FileCreate
	case mask&unix.IN_MODIFY != 0:
		return api.FileWrite
	case mask&unix.IN_DELETE != 0:
		return api.FileRemove
	case mask&unix.IN_MOVED_FROM != 0:
		return api.FileRename
	}
	return api.FileChmod
}

// moved forgets the names of a directory and all below it. If it comes back
// under another name, that event comes before any from within.
func (c *changes) moved(path string) {
	for wd, dir := range c.paths {
		if dir == path || strings.HasPrefix(dir, path+"/") {
			c.paths[wd] = ""
		}
	}
}

// lost says that events were lost, having watched what came meanwhile.
func (c *changes) lost() {
	_ = c.below(c.root, nil) // what still is not watched is what this event says
	c.line(api.FileEvent{Type: api.FileOverflow})
}

func (c *changes) send(t api.FileEventType, path string) {
	c.line(api.FileEvent{Type: t, Path: strings.ToValidUTF8(path, "\uFFFD")})
}

func (c *changes) line(v any) {
	if c.err == nil {
		c.err = c.json.Encode(v)
	}
}

func (c *changes) flush() {
	if err := c.rc.Flush(); c.err == nil {
		c.err = err
	}
}
