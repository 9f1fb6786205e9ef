//go:build linux

package guestd

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// maxCall bounds the body of a call under /pandastack/, of which lists of
// patterns and a replacement are the longest.
const maxCall = 1 << 20

// Bounds of time of one operation.
const (
	searchTime    = 30 * time.Second
	searchTimeMax = 10 * time.Minute
)

// native adds the operations that the envd protocol does not have. They act as
// root, like those that it has.
func (s *Server) native(mux *http.ServeMux) {
	mux.HandleFunc("POST /pandastack/fs/copy", call(s.copyFile))
	mux.HandleFunc("POST /pandastack/fs/chmod", call(s.chmod))
	mux.HandleFunc("POST /pandastack/fs/chown", call(s.chown))
	mux.HandleFunc("POST /pandastack/fs/symlink", call(s.symlink))
	mux.HandleFunc("POST /pandastack/fs/readlink", call(s.readlink))
	mux.HandleFunc("POST /pandastack/fs/glob", call(s.glob))
	mux.HandleFunc("POST /pandastack/fs/search", call(s.search))
	mux.HandleFunc("POST /pandastack/fs/replace", call(s.replace))
	mux.HandleFunc("PUT /pandastack/fs/file", s.putFile)
	mux.HandleFunc("GET /pandastack/fs/archive", s.pack)
	mux.HandleFunc("PUT /pandastack/fs/archive", s.unpack)
	mux.HandleFunc("GET /pandastack/fs/watch", s.watchNative)
	mux.HandleFunc("POST /pandastack/git", s.git)
	mux.HandleFunc("GET /pandastack/ports", s.ports)
}

// call is a route whose body and answer are JSON.
func call[I, O any](do func(ctx context.Context, in I, username string) (O, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in I
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&in); err != nil {
			httpFail(w, invalid("the body is not the JSON of this call"))
			return
		}
		out, err := do(r.Context(), in, r.URL.Query().Get("username"))
		if err != nil {
			httpFail(w, err)
			return
		}
		httpJSON(w, out)
	}
}

func (s *Server) chmod(ctx context.Context, in api.ChangeMode, username string) (api.Changed, error) {
	bits, err := strconv.ParseUint(in.Mode, 8, 32)
	if err != nil || bits > 0o7777 {
		return api.Changed{}, invalid("the mode is not an octal number up to 7777: " + printable(in.Mode, 16))
	}
	mode := fs.FileMode(bits & 0o777)
	for bit, m := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= m
		}
	}
	return s.each(ctx, in.Path, username, in.Recursive, func(root *os.Root, name string, link bool) error {
		if link {
			return nil
		}
		return root.Chmod(name, mode)
	}, func(path string) error { return os.Chmod(path, mode) })
}

func (s *Server) chown(ctx context.Context, in api.ChangeOwner, username string) (api.Changed, error) {
	uid, gid, err := s.ownership(in.Owner, in.Group)
	if err != nil {
		return api.Changed{}, err
	}
	return s.each(ctx, in.Path, username, in.Recursive, func(root *os.Root, name string, _ bool) error {
		return root.Lchown(name, uid, gid)
	}, func(path string) error { return os.Lchown(path, uid, gid) })
}

// ownership gives the numbers of an owner and a group; -1 leaves what is.
func (s *Server) ownership(owner, group string) (uid, gid int, err error) {
	uid, gid = -1, -1
	if owner == "" && group == "" {
		return 0, 0, invalid("neither an owner nor a group is given")
	}
	if n, e := strconv.ParseUint(owner, 10, 31); e == nil {
		uid = int(n)
	} else if owner != "" {
		u, err := s.lookup(owner)
		if err != nil {
			return 0, 0, err
		}
		uid, gid = int(u.uid), int(u.gid)
	}
	if n, e := strconv.ParseUint(group, 10, 31); e == nil {
		gid = int(n)
	} else if group != "" {
		a := s.users.get()
		gid = -1
		for id, name := range a.groups {
			if name == group {
				gid = int(id)
			}
		}
		if gid < 0 {
			return 0, 0, &fault{code: connect.CodeInvalidArgument, reason: reasonUser, text: "there is no group '" + printable(group, 64) + "'"}
		}
	}
	return uid, gid, nil
}

// each changes one file, or with recursive all below it as well. Below, names
// are opened through their directory, so that a link put there meanwhile leads
// nowhere else.
func (s *Server) each(ctx context.Context, path, username string, recursive bool, below func(root *os.Root, name string, link bool) error, top func(path string) error) (api.Changed, error) {
	full, _, err := s.resolve(path, username)
	if err != nil {
		return api.Changed{}, err
	}
	fi, err := os.Lstat(full)
	if errors.Is(err, os.ErrNotExist) {
		return api.Changed{}, missing(full)
	}
	if err == nil {
		err = top(full)
	}
	if err != nil {
		return api.Changed{}, err
	}
	out := api.Changed{Count: 1}
	if !recursive || !fi.IsDir() {
		return out, nil
	}
	root, err := os.OpenRoot(full)
	if err != nil {
		return out, err
	}
	defer root.Close()
	w := &walker{ctx: ctx, visit: func(_, rel string, d fs.DirEntry) error {
		err := below(root, rel, d.Type()&fs.ModeSymlink != 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err == nil {
			out.Count++
		}
		return err
	}}
	return out, w.walk(full)
}

func (s *Server) symlink(_ context.Context, in api.MakeLink, username string) (api.LinkTarget, error) {
	path, u, err := s.resolve(in.Path, username)
	if err != nil {
		return api.LinkTarget{}, err
	}
	if in.Target == "" || len(in.Target) >= maxPath || strings.ContainsRune(in.Target, 0) {
		return api.LinkTarget{}, invalid("the target of the link is empty, too long or has a NUL byte")
	}
	if _, err := mkdirOwned(filepath.Dir(path), u); err != nil {
		return api.LinkTarget{}, err
	}
	if err := os.Symlink(in.Target, path); err != nil {
		return api.LinkTarget{}, err
	}
	return api.LinkTarget{Path: path, Target: in.Target}, os.Lchown(path, int(u.uid), int(u.gid))
}

func (s *Server) readlink(_ context.Context, in api.LinkTarget, username string) (api.LinkTarget, error) {
	path, _, err := s.resolve(in.Path, username)
	if err != nil {
		return api.LinkTarget{}, err
	}
	target, err := os.Readlink(path)
	if errors.Is(err, os.ErrNotExist) {
		err = missing(path)
	}
	return api.LinkTarget{Path: path, Target: strings.ToValidUTF8(target, "\uFFFD")}, err
}

func (s *Server) glob(ctx context.Context, in api.Glob, username string) (api.GlobResult, error) {
	root, _, err := s.resolve(in.Path, username)
	if err != nil {
		return api.GlobResult{}, err
	}
	g, err := parseGlob(in.Pattern)
	if err != nil {
		return api.GlobResult{}, err
	}
	g.name = false // a pattern is for the whole path here
	if err := isDir(root); err != nil {
		return api.GlobResult{}, err
	}
	limit := within(in.Limit, 1000, api.MaxGlobMatches)
	out := api.GlobResult{Path: root, Matches: []api.FileInfo{}}
	w := &walker{ctx: ctx, include: []*glob{g}, visit: func(path, _ string, d fs.DirEntry) error {
		if len(out.Matches) == limit {
			out.Truncated = true
			return errStop
		}
		if fi, err := d.Info(); err == nil {
			out.Matches = append(out.Matches, s.fileInfo(path, fi))
		}
		return nil
	}}
	// What stands before the first pattern need not be searched for.
	fixed := globPrefix(in.Pattern)
	err = w.below(root, fixed)
	slices.SortFunc(out.Matches, func(a, b api.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// globPrefix is the directories that a pattern names outright.
func globPrefix(pattern string) string {
	pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "./"), "/")
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		pattern = pattern[:i]
	}
	i := strings.LastIndexByte(pattern, '/')
	if i < 0 || !filepath.IsLocal(pattern[:i]) {
		return ""
	}
	return pattern[:i]
}

// below walks one directory of root, with paths relative to root.
func (w *walker) below(root, rel string) error {
	dir := filepath.Join(root, rel)
	if fi, err := os.Lstat(dir); err != nil || rel != "" && !fi.IsDir() {
		return nil
	}
	if err := w.dir(dir, rel); err != errStop {
		return err
	}
	return nil
}

// within gives n, or def where it is not set, but no more than most.
func within(n, def, most int) int {
	if n <= 0 {
		n = def
	}
	return min(n, most)
}

// duration is seconds of a request as a time, with a default and a bound.
func duration(seconds float64, def, most time.Duration) time.Duration {
	if !(seconds > 0) {
		return def
	}
	return min(time.Duration(min(seconds, most.Seconds())*float64(time.Second)), most)
}

// fileInfo describes a file in our own form.
func (s *Server) fileInfo(path string, fi fs.FileInfo) api.FileInfo {
	e := s.describe(path, fi)
	info := api.FileInfo{Name: e.Name, Path: e.Path, Type: "other", Size: e.Size, Mode: e.Permissions,
		Owner: e.Owner, Group: e.Group, Modified: fi.ModTime().UTC(), Target: e.GetSymlinkTarget()}
	switch e.Type {
	case pb.FileType_FILE_TYPE_FILE:
		info.Type = "file"
	case pb.FileType_FILE_TYPE_DIRECTORY:
		info.Type = "directory"
	case pb.FileType_FILE_TYPE_SYMLINK:
		info.Type = "symlink"
	}
	return info
}
