//go:build linux

package guestd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// watch follows the changes of one directory, or of the tree under it.
type watch struct {
	s       *Server
	root    string
	deep    bool
	entries bool
	notify  *fsnotify.Watcher
	early   map[string]bool // reported before their own event, by path
}

// networkTypes are the filesystems whose changes by other machines are not
// seen, so that watching them would mislead.
var networkTypes = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true,
	unix.SMB2_SUPER_MAGIC: true, unix.FUSE_SUPER_MAGIC: true,
}

func (s *Server) newWatch(path, username string, deep, entries, network bool) (*watch, error) {
	root, _, err := s.resolve(path, username)
	if err != nil {
		return nil, err
	}
	if err := isDir(root); err != nil {
		return nil, err
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(root, &st); err == nil && networkTypes[int64(st.Type)] && !network {
		return nil, invalid("path '" + root + "' is on a network filesystem, whose changes cannot all be seen")
	}
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watch{s: s, root: root, deep: deep, entries: entries, notify: n, early: map[string]bool{}}
	if err := w.add(root, nil); err != nil {
		n.Close()
		return nil, err
	}
	return w, nil
}

// add watches dir, and with deep what is under it. With found, what is there
// already is reported: it came before the watch did.
func (w *watch) add(dir string, found func(string)) error {
	if err := w.notify.Add(dir); err != nil {
		return err
	}
	if !w.deep {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // gone again
	}
	for _, d := range entries {
		path := filepath.Join(dir, d.Name())
		if found != nil {
			found(path)
		}
		if d.IsDir() {
			if err := w.add(path, found); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// run reports events until ctx ends or emit fails.
func (w *watch) run(ctx context.Context, emit func(*pb.FilesystemEvent) error) error {
	defer w.notify.Close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.s.stopping:
			return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is stopping"))
		case err, ok := <-w.notify.Errors:
			if !ok || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return connect.NewError(connect.CodeInternal, errors.New("watching failed"))
			}
		case ev, ok := <-w.notify.Events:
			if !ok {
				return connect.NewError(connect.CodeInternal, errors.New("watching failed"))
			}
			if err := w.event(ev, emit); err != nil {
				return err
			}
		}
	}
}

func (w *watch) event(ev fsnotify.Event, emit func(*pb.FilesystemEvent) error) error {
	var err error
	send := func(path string, t pb.EventType) {
		if e := w.message(path, t); e != nil && err == nil {
			err = emit(e)
		}
	}
	seen := w.early[ev.Name]
	delete(w.early, ev.Name)
	if ev.Has(fsnotify.Create) {
		if !seen {
			send(ev.Name, pb.EventType_EVENT_TYPE_CREATE)
		}
		if fi, e := os.Lstat(ev.Name); w.deep && e == nil && fi.IsDir() {
			// An error here means gone again, or the limit on watches: the
			// rest of the tree goes on being watched.
			_ = w.add(ev.Name, func(path string) {
				if len(w.early) < 10_000 && !w.early[path] {
					w.early[path] = true
					send(path, pb.EventType_EVENT_TYPE_CREATE)
				}
			})
		}
	}
	for _, m := range []struct {
		op fsnotify.Op
		t  pb.EventType
	}{
		{fsnotify.Write, pb.EventType_EVENT_TYPE_WRITE},
		{fsnotify.Remove, pb.EventType_EVENT_TYPE_REMOVE},
		{fsnotify.Rename, pb.EventType_EVENT_TYPE_RENAME},
		{fsnotify.Chmod, pb.EventType_EVENT_TYPE_CHMOD},
	} {
		if ev.Has(m.op) {
			send(ev.Name, m.t)
		}
	}
	return err
}

// message makes the event of a path, named relative to the watched directory.
func (w *watch) message(path string, t pb.EventType) *pb.FilesystemEvent {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return nil
	}
	ev := &pb.FilesystemEvent{Name: strings.ToValidUTF8(name, "\uFFFD"), Type: t}
	switch t {
	case pb.EventType_EVENT_TYPE_CREATE, pb.EventType_EVENT_TYPE_WRITE, pb.EventType_EVENT_TYPE_CHMOD:
		if w.entries {
			ev.Entry, _ = w.s.entry(path) // gone again: no entry
		}
	}
	return ev
}
