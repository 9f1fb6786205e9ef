package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Store keeps images in a directory. Its methods may be called concurrently,
// also from several processes on one directory.
type Store struct {
	dir    string
	log    *slog.Logger
	limits Limits
	mirror string
}

// Option changes a Store.
type Option func(*Store)

// WithLimits bounds roots that come from archives and directories.
func WithLimits(l Limits) Option { return func(s *Store) { s.limits = l.withDefaults() } }

// WithMirror names the Debian archive that recipes are built from (a URL),
// instead of the recipe's or the host's own.
func WithMirror(url string) Option { return func(s *Store) { s.mirror = url } }

// NewStore gives the store in dir, which is made at the first use.
func NewStore(dir string, log *slog.Logger, opts ...Option) *Store {
	s := &Store{dir: dir, log: log, limits: Limits{}.withDefaults()}
	for _, o := range opts {
		o(s)
	}
	return s
}

func (s *Store) imagePath(hex string) string { return filepath.Join(s.dir, hex+".erofs") }
func (s *Store) metaPath(hex string) string  { return filepath.Join(s.dir, hex+".json") }
func (s *Store) lockPath() string            { return filepath.Join(s.dir, ".lock") }

// prepare makes the store's directories. Only root may look inside: a root
// filesystem in the making holds set-user-id programs.
func (s *Store) prepare() error {
	for _, d := range []string{s.dir, filepath.Join(s.dir, "tmp"), filepath.Join(s.dir, "builds")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make image store: %w", err)
		}
	}
	return nil
}

// Get finds an image by digest. It fails with template.not_found, or with
// snapshot.corrupt when the file is not as long as it was when it was made.
func (s *Store) Get(digest string) (Image, error) {
	hex, ok := parseDigest(digest)
	if !ok {
		return Image{}, invalid("%q is not an image digest (sha256: and 64 hex digits)", digest)
	}
	fi, err := os.Stat(s.imagePath(hex))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, api.Errorf(api.CodeTemplateNotFound, "there is no image %s%s", digestPrefix, hex)
	} else if err != nil {
		return Image{}, fmt.Errorf("look for image: %w", err)
	}
	img := Image{Size: fi.Size(), Created: fi.ModTime()}
	if b, err := os.ReadFile(s.metaPath(hex)); err == nil {
		// Without its description an image is as good as with it.
		if json.Unmarshal(b, &img) == nil && img.Size != fi.Size() {
			return Image{}, corrupt(hex, fmt.Sprintf("it has %d bytes instead of %d", fi.Size(), img.Size))
		}
	}
	img.Digest, img.Path, img.Size = digestPrefix+hex, s.imagePath(hex), fi.Size()
	return img, nil
}

// List gives every image, oldest first.
func (s *Store) List() ([]Image, error) {
	paths, err := filepath.Glob(filepath.Join(s.dir, "*.erofs"))
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, p := range paths {
		img, err := s.Get(strings.TrimSuffix(filepath.Base(p), ".erofs"))
		if api.CodeOf(err) == api.CodeTemplateInvalid || api.CodeOf(err) == api.CodeTemplateNotFound {
			continue
		} else if err != nil {
			return nil, err
		}
		out = append(out, img)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Created.Before(out[j].Created) })
	return out, nil
}

// Verify reads an image and compares its bytes with its name. A difference is
// snapshot.corrupt.
func (s *Store) Verify(ctx context.Context, digest string) error {
	img, err := s.Get(digest)
	if err != nil {
		return err
	}
	got, err := hashFile(ctx, img.Path)
	if err != nil {
		return err
	}
	if digestPrefix+got != img.Digest {
		return corrupt(strings.TrimPrefix(img.Digest, digestPrefix), "its bytes hash to "+got)
	}
	return nil
}

// Remove deletes an image. One that has a tag stays, with request.invalid.
func (s *Store) Remove(ctx context.Context, digest string) error {
	img, err := s.Get(digest)
	if err != nil && api.CodeOf(err) != api.CodeSnapshotCorrupt {
		return err
	}
	hex, _ := parseDigest(digest)
	l, err := lock(ctx, s.lockPath())
	if err != nil {
		return fmt.Errorf("remove image: %w", err)
	}
	defer l.unlock()
	tags, err := s.Tags()
	if err != nil {
		return err
	}
	for name, d := range tags {
		if d == img.Digest {
			return api.Errorf(api.CodeInvalidRequest, "image %s has the tag %q", img.Digest, name)
		}
	}
	os.Remove(s.metaPath(hex))
	return os.Remove(s.imagePath(hex))
}

func corrupt(hex, why string) *api.Error {
	return api.Errorf(api.CodeSnapshotCorrupt, "image %s%s is damaged: %s", digestPrefix, hex, why).
		WithHint("Delete the file in the image store; the image is made anew when it is needed.")
}

func hashFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, &ctxReader{ctx, f}, make([]byte, 1<<20)); err != nil {
		return "", fmt.Errorf("hash %s: %w", filepath.Base(path), err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// ctxReader ends a long copy when ctx does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
