package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
)

// FromRecipe gives the image of a recipe, and builds it if that was not done
// before. Of several builds of one recipe at a time, in any process, one runs
// and the others wait for its image. A failed build is template.build_failed
// with the end of the log in the detail "log".
func (s *Store) FromRecipe(ctx context.Context, r Recipe, p Progress) (Image, error) {
	return s.fromRecipe(ctx, r, false, p)
}

// Rebuild builds a recipe's image anew, for the packages that its archive has
// now.
func (s *Store) Rebuild(ctx context.Context, r Recipe, p Progress) (Image, error) {
	return s.fromRecipe(ctx, r, true, p)
}

func (s *Store) fromRecipe(ctx context.Context, r Recipe, rebuild bool, p Progress) (Image, error) {
	if key, problem := r.problem(); problem != "" {
		return Image{}, invalid("recipe %q: key %q %s", r.Name, key, problem)
	}
	return s.once(ctx, r.key(s.mirror), rebuild, func() (Image, error) {
		if err := requireBuilder(append([]Missing{needErofs}, needDebian...)...); err != nil {
			return Image{}, err
		}
		return s.build(ctx, "recipe "+r.Name, p, func(c *scratch) error {
			if err := buildDebian(ctx, r, s.mirror, c, p.within(0, 0.85)); err != nil {
				return err
			}
			return clearLeftovers(c.root())
		})
	})
}

// FromDir makes an image of a directory that holds a root filesystem. The
// directory is copied, not changed.
func (s *Store) FromDir(ctx context.Context, dir string, p Progress) (Image, error) {
	if err := requireBuilder(needErofs); err != nil {
		return Image{}, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Image{}, err
	}
	return s.build(ctx, "directory "+dir, p, func(c *scratch) error {
		p.report("copying files", 0)
		if err := measure(ctx, dir, s.limits); err != nil {
			return err
		}
		// cp comes with every system's essential packages; -a keeps owners,
		// links, times and attributes.
		err := command{name: "cp", args: []string{"-a", "--one-file-system", "--", dir + "/.", c.root()}}.run(ctx)
		if err != nil && ctx.Err() == nil {
			return api.Wrap(api.CodeTemplateBuild, err, "copying the directory failed").With("log", tailOf(err))
		} else if err != nil {
			return err
		}
		return dropDevices(c.root())
	})
}

// FromTar makes an image of a tar archive that holds a root filesystem: plain,
// or compressed with gzip or bzip2.
func (s *Store) FromTar(ctx context.Context, r io.Reader, p Progress) (Image, error) {
	return s.fromTar(ctx, r, "archive", p, func(done int64) float64 {
		// How much is to come is unknown: approach the end.
		return 1 - 1/(1+float64(done)/(1<<30))
	})
}

// FromTarFile is FromTar for an archive in a file.
func (s *Store) FromTarFile(ctx context.Context, path string, p Progress) (Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return Image{}, api.Wrap(api.CodeTemplateInvalid, err, "the archive cannot be opened: %s", filepath.Base(path))
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return Image{}, invalid("the archive is not a regular file: %s", filepath.Base(path))
	}
	return s.once(ctx, archiveKey(path, fi), false, func() (Image, error) {
		counter := &countingReader{r: f}
		return s.fromTar(ctx, counter, "archive "+filepath.Base(path), p, func(int64) float64 {
			return float64(counter.n) / float64(max(fi.Size(), 1))
		})
	})
}

// archiveKey names an archive as it is now: where it is, how long, and when it
// was last changed.
func archiveKey(path string, fi os.FileInfo) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "archive\n%s\n%d\n%d", path, fi.Size(), fi.ModTime().UnixNano()))
	return hex.EncodeToString(sum[:])
}

func (s *Store) fromTar(ctx context.Context, r io.Reader, source string, p Progress, done func(int64) float64) (Image, error) {
	if err := requireBuilder(needErofs); err != nil {
		return Image{}, err
	}
	content, err := decompress(r)
	if err != nil {
		return Image{}, err
	}
	return s.build(ctx, source, p, func(c *scratch) error {
		t, err := openTree(c.root())
		if err != nil {
			return err
		}
		defer t.close()
		last := time.Time{}
		return untar(ctx, t, content, s.limits, func(bytes int64) {
			if now := time.Now(); now.Sub(last) > 200*time.Millisecond {
				last = now
				p.report("unpacking archive", 0.85*done(bytes))
			}
		})
	})
}

// build makes a root filesystem with fill, completes it and stores its image.
func (s *Store) build(ctx context.Context, source string, p Progress, fill func(*scratch) error) (img Image, err error) {
	c, err := s.newScratch(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() {
		if rerr := c.remove(); rerr != nil && err == nil {
			err = fmt.Errorf("remove build directory: %w", rerr)
		}
	}()
	if err := fill(c); err != nil {
		return Image{}, full(err)
	}
	t, err := openTree(c.root())
	if err != nil {
		return Image{}, err
	}
	defer t.close()
	if err := t.check(); err != nil {
		return Image{}, err
	}
	if err := t.finish(); err != nil {
		return Image{}, full(err)
	}
	return s.pack(ctx, c, source, p.within(0.85, 1))
}

// GuestImage gives the image that holds the guest program at /guest, which
// every sandbox has beside its root. It is made once for the same bytes.
func (s *Store) GuestImage(ctx context.Context, program []byte) (Image, error) {
	sum := sha256.Sum256(program)
	return s.once(ctx, "guest-"+hex.EncodeToString(sum[:]), false, func() (Image, error) {
		if err := requireBuilder(needErofs); err != nil {
			return Image{}, err
		}
		c, err := s.newScratch(ctx)
		if err != nil {
			return Image{}, err
		}
		img, err := s.packGuest(ctx, c, program)
		return img, errors.Join(err, c.remove())
	})
}

func (s *Store) packGuest(ctx context.Context, c *scratch, program []byte) (Image, error) {
	path := filepath.Join(c.root(), "guest")
	if err := os.WriteFile(path, program, 0o600); err != nil {
		return Image{}, full(err)
	}
	if err := errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o555)); err != nil {
		return Image{}, err
	}
	return s.pack(ctx, c, "guest program", nil)
}

// requireBuilder refuses to begin what could not end well.
func requireBuilder(needs ...Missing) error {
	if os.Geteuid() != 0 {
		return api.Errorf(api.CodeNotRoot, "building images needs root, to give files their owners")
	}
	return require(needs...)
}

// measure refuses a directory beyond the limits before it is copied.
func measure(ctx context.Context, dir string, limits Limits) error {
	st, err := os.Stat(dir)
	if err != nil || !st.IsDir() {
		return invalid("%s is not a directory", dir)
	}
	var entries int
	var bytes int64
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return api.Wrap(api.CodeTemplateBuild, err, "the directory cannot be read")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if entries++; entries > limits.Entries {
			return invalid("%s has more than %d entries", dir, limits.Entries)
		}
		if d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				bytes += fi.Size()
			}
		}
		if bytes > limits.Bytes {
			return invalid("%s holds more than %d bytes", dir, limits.Bytes)
		}
		return nil
	})
}

// leftovers are the directories of a new Debian root whose content is of no use
// in an image: devices, which each sandbox has of its own, and what package
// tools keep for the next time.
var leftovers = []string{"dev", "run", "tmp", "var/tmp", "var/lib/apt/lists", "var/cache/apt"}

// clearLeftovers empties the directories of leftovers.
func clearLeftovers(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range leftovers {
		entries, err := fs.ReadDir(root.FS(), name)
		if gone(err) {
			continue
		} else if err != nil {
			return err
		}
		for _, e := range entries {
			if err := root.RemoveAll(name + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
