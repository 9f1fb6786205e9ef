package cli

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// maxDownloadDepth bounds how deep directories are followed: what lists them is
// in the sandbox, and may make them up without end.
const maxDownloadDepth = 128

func (c *copier) download(from, to string) error {
	if to == "-" {
		return c.downloadTo(c.app.stdout, from)
	}
	tree, err := c.isDir(from)
	if err != nil {
		return err
	}
	target, err := os.Stat(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError(err)
	}
	exists := err == nil
	name := path.Base(path.Clean("/" + from))
	contents := strings.HasSuffix(from, "/.") || name == "." || name == "/"
	if !contents && (exists && target.IsDir() || !tree && strings.HasSuffix(to, "/")) {
		to = filepath.Join(to, name)
	}
	if tree {
		return c.downloadTree(from, to)
	}
	if exists && !target.IsDir() && !target.Mode().IsRegular() {
		// A device or pipe is written to, not replaced.
		f, err := os.OpenFile(to, os.O_WRONLY, 0)
		if err != nil {
			return localError(err)
		}
		defer f.Close()
		return c.downloadTo(f, from)
	}
	info, err := c.fs.Stat(c.ctx, from)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return localError(err)
	}
	defer root.Close()
	return c.downloadFile(root, from, filepath.Base(to), info)
}

func (c *copier) downloadTree(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return localError(err)
	}
	// Everything below is opened through root, so that no name that the
	// sandbox gives can lead out of the directory.
	root, err := os.OpenRoot(to)
	if err != nil {
		return localError(err)
	}
	defer root.Close()
	return c.downloadDir(root, from, ".", 0)
}

func (c *copier) downloadDir(root *os.Root, from, to string, depth int) error {
	if depth > maxDownloadDepth {
		return api.Errorf(api.CodeFileInvalidPath, "%s is more than %d directories deep", from, maxDownloadDepth).WithHint("")
	}
	entries, err := c.fs.ReadDir(c.ctx, from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00"+string(filepath.Separator)) || !filepath.IsLocal(e.Name) {
			return api.Errorf(api.CodeFileInvalidPath, "the sandbox lists a file under a name that is none: %q", e.Name).WithHint("")
		}
		remote, local := path.Join(from, e.Name), filepath.Join(to, e.Name)
		switch e.Type {
		case "directory":
			if err := root.MkdirAll(local, 0o755); err != nil {
				return localError(err)
			}
			err = c.downloadDir(root, remote, local, depth+1)
		case "file":
			err = c.downloadFile(root, remote, local, e)
		default:
			c.warn("left out %s: not a plain file", remote)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// downloadFile writes a file under another name and renames it, so that what
// has the name is whole.
func (c *copier) downloadFile(root *os.Root, from, to string, info api.FileInfo) error {
	mode := fs.FileMode(0o644)
	if strings.HasPrefix(info.Mode, "-") && strings.Contains(info.Mode, "x") {
		mode = 0o755
	}
	if old, err := root.Stat(to); err == nil && old.IsDir() {
		return localError(&fs.PathError{Op: "write", Path: to, Err: errors.New("is a directory")})
	}
	if info.Size >= resumeAbove {
		return c.downloadParts(root, from, to, mode, info)
	}
	part := to + ".part-" + api.NewID()
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return localError(err)
	}
	err = c.downloadTo(f, from)
	if e := f.Close(); err == nil && e != nil {
		err = localError(e)
	}
	if err == nil {
		if err = root.Rename(part, to); err != nil {
			err = localError(err)
		}
	}
	if err != nil {
		_ = root.Remove(part) // the failure before is the one that matters
	}
	return err
}
