//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

func smallImage(t testing.TB, s *Store, entries ...tar.Header) Image {
	t.Helper()
	img, err := s.FromTar(t.Context(), bytes.NewReader(archive(t, withShell(entries...)...)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestNamesOfImages(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	if tags, err := s.Tags(); err != nil || len(tags) != 0 {
		t.Errorf("tags of a new store: %v, %v", tags, err)
	}
	_, err := s.Resolve("base")
	wantCode(t, err, api.CodeTemplateNotFound, `"base"`)
	a, b := smallImage(t, s), smallImage(t, s, reg("x", "x"))
	if a.Digest == b.Digest || a.Size == 0 || a.Tool == "" || a.Created.IsZero() {
		t.Errorf("images: %+v, %+v", a, b)
	}
	if err := s.Tag("base", a.Digest); err != nil {
		t.Fatal(err)
	}
	if err := s.Tag("base", strings.TrimPrefix(b.Digest, digestPrefix)); err != nil {
		t.Fatal(err)
	}
	// Another store on the directory sees what this one did.
	s = NewStore(s.dir, s.log)
	for _, name := range []string{"base", b.Digest, strings.TrimPrefix(b.Digest, digestPrefix)} {
		if got, err := s.Resolve(name); err != nil || got.Digest != b.Digest || got.Source != "archive" || got.Path == "" {
			t.Errorf("%s is %+v, %v", name, got, err)
		}
	}
	wantCode(t, s.Tag("Base", a.Digest), api.CodeTemplateInvalid, "not a name")
	wantCode(t, s.Tag(strings.Repeat("a", 64), a.Digest), api.CodeTemplateInvalid, "not a name")
	wantCode(t, s.Tag("other", digestPrefix+strings.Repeat("0", 64)), api.CodeTemplateNotFound, "no image")
	if images, err := s.List(); err != nil || len(images) != 2 {
		t.Errorf("list: %v, %v", images, err)
	}
	wantCode(t, s.Remove(t.Context(), b.Digest), api.CodeInvalidRequest, "has the tag")
	if err := errors.Join(s.Untag("base"), s.Untag("base"), s.Remove(t.Context(), b.Digest)); err != nil {
		t.Error(err)
	}
	_, err = s.Get(b.Digest)
	wantCode(t, err, api.CodeTemplateNotFound, "no image")
}

func TestDamagedImage(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	img := smallImage(t, s)
	damage := func(f func(*os.File) error) {
		t.Helper()
		file, err := os.OpenFile(img.Path, os.O_RDWR, 0)
		if err == nil {
			err = errors.Join(f(file), file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	damage(func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 2000); return err })
	wantCode(t, s.Verify(t.Context(), img.Digest), api.CodeSnapshotCorrupt, "damaged")
	damage(func(f *os.File) error { return f.Truncate(100) })
	_, err := s.Get(img.Digest)
	wantCode(t, err, api.CodeSnapshotCorrupt, "100 bytes")
	// Building the same content again puts a good file in its place.
	if again := smallImage(t, s); again.Digest != img.Digest {
		t.Errorf("made again: %s, was %s", again.Digest, img.Digest)
	}
	if err := s.Verify(t.Context(), img.Digest); err != nil {
		t.Error(err)
	}
}

func TestGuestImage(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	program := bytes.Repeat([]byte("guest"), 10_000)
	img, err := s.GuestImage(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	mounted(t, img, func(root string) {
		b, err := os.ReadFile(filepath.Join(root, "guest"))
		if err != nil || !bytes.Equal(b, program) {
			t.Errorf("the guest program differs: %d bytes, %v", len(b), err)
		}
		if fi, err := os.Stat(filepath.Join(root, "guest")); err != nil || fi.Mode() != 0o555 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
	})
	start := time.Now()
	again, err := s.GuestImage(t.Context(), program)
	if err != nil || again.Digest != img.Digest {
		t.Errorf("again: %v, %v", again, err)
	}
	t.Logf("again in %s", time.Since(start))
	other, err := testStore(t).GuestImage(t.Context(), program)
	if err != nil || other.Digest != img.Digest {
		t.Errorf("another store made %s of the same program, this one %s (%v)", other.Digest, img.Digest, err)
	}
}

// TestOneBuilds has many ask for the same image at once, from stores that share
// only the directory.
func TestOneBuilds(t *testing.T) {
	needRoot(t)
	t.Parallel()
	dir := t.TempDir()
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s := NewStore(dir, testStore(t).log)
			img, err := s.once(t.Context(), "key", false, func() (Image, error) {
				builds.Add(1)
				time.Sleep(50 * time.Millisecond)
				return smallImage(t, s), nil
			})
			if err != nil || img.Digest == "" {
				t.Errorf("%v, %v", img, err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("%d of 8 built", n)
	}
	s := NewStore(dir, testStore(t).log)
	if _, err := s.once(t.Context(), "fails", false, func() (Image, error) { return Image{}, errors.New("no") }); err == nil {
		t.Error("no error")
	}
	if _, err := s.once(t.Context(), "fails", false, func() (Image, error) { return smallImage(t, s), nil }); err != nil {
		t.Errorf("after a failure: %v", err)
	}
}

// TestWaitEndsWithContext lets another process hold the lock of a build.
func TestWaitEndsWithContext(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("flock", filepath.Join(s.dir, "builds", "key.lock"), "sh", "-c", "echo held; cat")
	in, _ := holder.StdinPipe()
	out, _ := holder.StdoutPipe()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 5))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.once(ctx, "key", false, func() (Image, error) { t.Error("built beside the holder"); return Image{}, nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting ended with %v", err)
	}
	in.Close()
	holder.Wait()
	if _, err := s.once(t.Context(), "key", false, func() (Image, error) { return smallImage(t, s), nil }); err != nil {
		t.Errorf("after the holder: %v", err)
	}
}

func TestSweep(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	if err := NewStore(filepath.Join(s.dir, "none"), s.log).Sweep(t.Context()); err != nil {
		t.Errorf("sweep of a store that is not there: %v", err)
	}
	img := smallImage(t, s)
	live, err := s.newScratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What a crash leaves: a scratch directory that nobody locks, one without
	// even a lock, a half-written file, a description without its image.
	orphan := filepath.Join(s.dir, strings.Repeat("a", 64)+".json")
	for _, f := range []string{filepath.Join(s.dir, "tmp/build-1/root/etc/passwd"), filepath.Join(s.dir, "tmp/build-1/lock"), filepath.Join(s.dir, "tmp/build-2/x"), filepath.Join(s.dir, ".new-1"), orphan} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o700), os.WriteFile(f, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := NewStore(s.dir, s.log).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if len(left) != 1 || left[0].Name() != filepath.Base(live.dir) {
		t.Errorf("left in tmp: %v, want only the build that runs", left)
	}
	for _, f := range []string{orphan, filepath.Join(s.dir, ".new-1")} {
		if _, err := os.Stat(f); !gone(err) {
			t.Errorf("%s is left", f)
		}
	}
	if _, err := s.Get(img.Digest); err != nil {
		t.Errorf("the image is gone: %v", err)
	}
	if err := live.remove(); err != nil {
		t.Error(err)
	}
}
