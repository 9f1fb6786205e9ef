//go:build linux

package guestd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"connectrpc.com/connect"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// maxEntries bounds one listing.
const maxEntries = 50_000

// files implements filesystem.Filesystem. Like the rest of the daemon it acts
// as root: the user of a request says where relative paths start and who owns
// what is made.
type files struct{ s *Server }

func missing(path string) error {
	return &fault{code: connect.CodeNotFound, reason: "ENOENT", text: fmt.Sprintf("path '%s' does not exist", printable(path, 512))}
}

func (h files) Stat(_ context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	path, _, err := h.s.resolve(req.Msg.GetPath(), basicUser(req.Header()))
	if err != nil {
		return nil, rpcError(err)
	}
	e, err := h.s.entry(path)
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&pb.StatResponse{Entry: e}), nil
}

func (h files) MakeDir(_ context.Context, req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	path, u, err := h.s.resolve(req.Msg.GetPath(), basicUser(req.Header()))
	if err != nil {
		return nil, rpcError(err)
	}
	made, err := mkdirOwned(path, u)
	if err != nil {
		return nil, rpcError(err)
	}
	if !made {
		return nil, rpcError(&fault{code: connect.CodeAlreadyExists, reason: "EEXIST", text: fmt.Sprintf("directory '%s' already exists", path)})
	}
	e, err := h.s.entry(path)
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: e}), nil
}

func (h files) Move(_ context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	name := basicUser(req.Header())
	from, u, err := h.s.resolve(req.Msg.GetSource(), name)
	if err != nil {
		return nil, rpcError(err)
	}
	to, _, err := h.s.resolve(req.Msg.GetDestination(), name)
	if err != nil {
		return nil, rpcError(err)
	}
	if _, err := os.Lstat(from); err != nil {
		return nil, rpcError(err)
	}
	if _, err := mkdirOwned(filepath.Dir(to), u); err != nil {
		return nil, rpcError(err)
	}
	if err := os.Rename(from, to); err != nil {
		return nil, rpcError(err)
	}
	e, err := h.s.entry(to)
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: e}), nil
}

func (h files) Remove(_ context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	path, _, err := h.s.resolve(req.Msg.GetPath(), basicUser(req.Header()))
	if err == nil && path == "/" {
		err = &fault{code: connect.CodeInvalidArgument, reason: "EINVAL", text: "the root directory cannot be removed"}
	}
	if err == nil {
		err = os.RemoveAll(path)
	}
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

func (h files) ListDir(ctx context.Context, req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	path, _, err := h.s.resolve(req.Msg.GetPath(), basicUser(req.Header()))
	if err != nil {
		return nil, rpcError(err)
	}
	if err := isDir(path); err != nil {
		return nil, rpcError(err)
	}
	l := &lister{s: h.s, ctx: ctx}
	if err := l.list(path, max(req.Msg.GetDepth(), 1)); err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&pb.ListDirResponse{Entries: l.out}), nil
}

// isDir says whether path leads to a directory, and if not, why.
func isDir(path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return missing(path)
	case err != nil:
		return err
	case !fi.IsDir():
		return &fault{code: connect.CodeInvalidArgument, reason: "ENOTDIR", text: fmt.Sprintf("path '%s' is not a directory", path)}
	}
	return nil
}

// lister walks a tree depth first in lexical order, without following links.
type lister struct {
	s   *Server
	ctx context.Context
	out []*pb.EntryInfo
}

func (l *lister) list(dir string, depth uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil && len(entries) == 0 && len(l.out) == 0 {
		return err // below the top, what cannot be read is left out
	}
	for _, d := range entries {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			continue // removed meanwhile
		}
		if len(l.out) == maxEntries {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d entries; list a smaller part", maxEntries))
		}
		path := filepath.Join(dir, d.Name())
		l.out = append(l.out, l.s.describe(path, fi))
		if fi.IsDir() && depth > 1 {
			if err := l.list(path, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}
