//go:build linux

package guestd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// walkBatch is how many entries of a directory are held at a time.
const walkBatch = 1024

// errStop ends a walk that has seen enough.
var errStop = errors.New("enough")

// systemDirs hold no files of anybody: a walk of what is above leaves them out.
var systemDirs = map[string]bool{"/proc": true, "/sys": true, "/dev": true}

// walker visits what is below a directory, or one file, without following
// links. What cannot be read is left out.
type walker struct {
	ctx              context.Context
	include, exclude []*glob
	skipGit          bool // the insides of repositories
	visit            func(path, rel string, d fs.DirEntry) error
}

// walk visits root itself if it is a file, else all below it.
func (w *walker) walk(root string) error {
	fi, err := os.Stat(root)
	if errors.Is(err, os.ErrNotExist) {
		return missing(root)
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		err = w.visit(root, filepath.Base(root), fs.FileInfoToDirEntry(fi))
	} else {
		err = w.dir(root, "")
	}
	if err == errStop {
		return nil
	}
	return err
}

func (w *walker) dir(dir, rel string) error {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	var below []string
	for err == nil {
		var entries []fs.DirEntry
		entries, err = f.ReadDir(walkBatch)
		for _, d := range entries {
			if e := w.entry(dir, rel, d, &below); e != nil {
				f.Close()
				return e
			}
		}
	}
	f.Close()
	for _, name := range below {
		if err := w.dir(filepath.Join(dir, name), filepath.Join(rel, name)); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(dir, rel string, d fs.DirEntry, below *[]string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	path, rel := filepath.Join(dir, d.Name()), filepath.Join(rel, d.Name())
	if len(path) >= maxPath || matchAny(w.exclude, rel) {
		return nil
	}
	if d.IsDir() && !systemDirs[path] && !(w.skipGit && d.Name() == ".git") {
		*below = append(*below, d.Name())
	}
	if len(w.include) > 0 && !matchAny(w.include, rel) {
		return nil
	}
	return w.visit(path, rel, d)
}
