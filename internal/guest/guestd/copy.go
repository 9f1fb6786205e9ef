//go:build linux

package guestd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
)

// copier copies a file or a tree for one user, who owns the copy.
type copier struct {
	ctx       context.Context
	owner     user
	overwrite bool
	count     int
}

func (s *Server) copyFile(ctx context.Context, in api.CopyFile, username string) (api.Changed, error) {
	from, u, err := s.resolve(in.From, username)
	if err != nil {
		return api.Changed{}, err
	}
	to, _, err := s.resolve(in.To, username)
	if err != nil {
		return api.Changed{}, err
	}
	fi, err := os.Lstat(from)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return api.Changed{}, missing(from)
	case err != nil:
		return api.Changed{}, err
	case from == to || fi.IsDir() && strings.HasPrefix(to+"/", strings.TrimSuffix(from, "/")+"/"):
		return api.Changed{}, &fault{code: connect.CodeInvalidArgument, reason: "EINVAL", text: fmt.Sprintf("'%s' cannot be copied into itself", from)}
	case !fi.IsDir() && !fi.Mode().IsRegular() && fi.Mode()&fs.ModeSymlink == 0:
		return api.Changed{}, &fault{code: connect.CodeInvalidArgument, reason: "EINVAL", text: fmt.Sprintf("path '%s' is not a regular file", from)}
	}
	if _, err := mkdirOwned(filepath.Dir(to), u); err != nil {
		return api.Changed{}, err
	}
	c := &copier{ctx: ctx, owner: u, overwrite: in.Overwrite}
	err = c.copy(from, to, fi)
	return api.Changed{Count: c.count}, err
}

func (c *copier) copy(from, to string, fi fs.FileInfo) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	var err error
	switch {
	case fi.IsDir():
		return c.dir(from, to, fi)
	case fi.Mode().IsRegular():
		err = c.file(from, to, fi)
	case fi.Mode()&fs.ModeSymlink != 0:
		err = c.link(from, to)
	default:
		return nil
	}
	if err == nil {
		c.count++
	}
	return err
}

func (c *copier) dir(from, to string, fi fs.FileInfo) error {
	if _, err := mkdirOwned(to, c.owner); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	c.count++
	for _, d := range entries {
		fi, err := d.Info()
		if err != nil {
			continue // removed meanwhile
		}
		if err := c.copy(filepath.Join(from, d.Name()), filepath.Join(to, d.Name()), fi); err != nil {
			return err
		}
	}
	// At the end: a directory that nobody may write to is filled first.
	return os.Chmod(to, fi.Mode().Perm())
}

func (c *copier) link(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if c.overwrite {
		_ = os.Remove(to) // what cannot be removed is told by what follows
	}
	if err := os.Symlink(target, to); err != nil {
		return err
	}
	return os.Lchown(to, int(c.owner.uid), int(c.owner.gid))
}

// file copies one file under another name first, so that what has the name is
// whole.
func (c *copier) file(from, to string, fi fs.FileInfo) error {
	src, _, err := openRegular(from)
	if err != nil {
		return err
	}
	defer src.Close()
	return replaceFile(to, fi.Mode().Perm(), c.owner, c.overwrite, func(f *os.File) error {
		return copyContent(c.ctx, f, src)
	})
}

// copyContent copies until the end or until ctx ends.
func copyContent(ctx context.Context, to *os.File, from io.Reader) error {
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	for ctx.Err() == nil {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
