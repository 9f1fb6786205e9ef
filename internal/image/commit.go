package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// commit names a finished file by its bytes and moves it into the store. If
// the store has the same bytes already, the file is dropped and the stored
// image is given.
func (s *Store) commit(ctx context.Context, file, source, tool string) (Image, error) {
	if err := syncPath(file); err != nil {
		return Image{}, fmt.Errorf("write image: %w", err)
	}
	hex, err := hashFile(ctx, file)
	if err != nil {
		return Image{}, err
	}
	l, err := lock(ctx, s.lockPath())
	if err != nil {
		return Image{}, fmt.Errorf("store image: %w", err)
	}
	defer l.unlock()
	if img, err := s.Get(hex); err == nil {
		return img, os.Remove(file)
	} else if c := api.CodeOf(err); c != api.CodeTemplateNotFound && c != api.CodeSnapshotCorrupt {
		return Image{}, err
	}
	fi, err := os.Stat(file)
	if err != nil {
		return Image{}, err
	}
	img := Image{Digest: digestPrefix + hex, Size: fi.Size(), Created: time.Now().UTC(), Source: source, Tool: tool}
	if err := os.Chmod(file, 0o444); err != nil {
		return Image{}, err
	}
	// The description comes first: an image that is there is described.
	if err := s.writeJSON(s.metaPath(hex), img); err != nil {
		return Image{}, err
	}
	if err := os.Rename(file, s.imagePath(hex)); err != nil {
		return Image{}, fmt.Errorf("store image: %w", err)
	}
	if err := syncPath(s.dir); err != nil {
		return Image{}, fmt.Errorf("store image: %w", err)
	}
	img.Path = s.imagePath(hex)
	return img, nil
}

// writeJSON replaces a small file so that readers see the old or the new one.
// The caller holds the store's lock.
func (s *Store) writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, tempPattern)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return syncPath(filepath.Dir(path))
}

const tempPattern = ".new-*"

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// built gives the image that an earlier build with the same key made.
func (s *Store) built(key string) (Image, bool) {
	b, err := os.ReadFile(filepath.Join(s.dir, "builds", key))
	if err != nil {
		return Image{}, false
	}
	img, err := s.Get(strings.TrimSpace(string(b)))
	return img, err == nil
}

// once runs build unless its key has an image, which then is the answer. Of
// several processes one builds; the others wait and take what it made.
func (s *Store) once(ctx context.Context, key string, rebuild bool, build func() (Image, error)) (Image, error) {
	if img, ok := s.built(key); ok && !rebuild {
		return img, nil
	}
	if err := s.prepare(); err != nil {
		return Image{}, err
	}
	record := filepath.Join(s.dir, "builds", key)
	l, err := lock(ctx, record+".lock")
	if err != nil {
		return Image{}, fmt.Errorf("wait for another build: %w", err)
	}
	defer l.unlock()
	if img, ok := s.built(key); ok && !rebuild {
		return img, nil
	}
	img, err := build()
	if err != nil {
		return Image{}, err
	}
	sl, err := lock(ctx, s.lockPath())
	if err != nil {
		return Image{}, fmt.Errorf("record build: %w", err)
	}
	defer sl.unlock()
	tmp := filepath.Join(s.dir, strings.Replace(tempPattern, "*", key, 1))
	if err := os.WriteFile(tmp, []byte(img.Digest+"\n"), 0o644); err != nil {
		return Image{}, fmt.Errorf("record build: %w", err)
	}
	if err := errors.Join(syncPath(tmp), os.Rename(tmp, record)); err != nil {
		return Image{}, fmt.Errorf("record build: %w", err)
	}
	return img, nil
}

// full tells a full disk from other failures: it is the host's disk that is
// meant, not a sandbox's.
func full(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return api.Wrap(api.CodeTemplateBuild, err, "the disk of the image store is full").
		WithHint("Free space on the host's disk or choose another data directory.")
}

// gone reports whether err says that a file is not there.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
