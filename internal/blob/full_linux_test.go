package blob_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/blob/s3test"
)

// small mounts a filesystem of 8 MB.
func small(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a small filesystem can be mounted by root only")
	}
	dir := t.TempDir()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func wantFull(t *testing.T, s blob.Store) {
	t.Helper()
	put(t, s, "before", "content")
	for _, size := range []int{9 << 20, 30 << 20} {
		err := s.Put(t.Context(), "large/one", bytes.NewReader(make([]byte, size)), int64(size))
		if api.CodeOf(err) != api.CodeSnapshotStoreFull {
			t.Errorf("Put of %d bytes: %v", size, err)
		}
		if _, err := s.Stat(t.Context(), "large/one"); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Stat: %v", err)
		}
	}
	wantKeys(t, s, "before")
	// There is room again for what fits, so nothing holds it. A server may let go
	// of what it could not take a moment after it has said so.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := s.Put(t.Context(), "after", bytes.NewReader(make([]byte, 5<<20)), 5<<20)
		if err == nil {
			break
		}
		if api.CodeOf(err) != api.CodeSnapshotStoreFull || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	wantKeys(t, s, "after", "before")
}

func TestDirThatIsFull(t *testing.T) {
	t.Parallel()
	dir := small(t)
	wantFull(t, openDir(t, dir))
	if left := files(t, dir); !slices.Equal(left, []string{".tmp~", "after", "before"}) {
		t.Errorf("left: %q", left)
	}
	if left := files(t, filepath.Join(dir, ".tmp~")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestS3ThatIsFull(t *testing.T) {
	t.Parallel()
	dir := small(t)
	wantFull(t, s3test.New(t, s3test.WithDir(dir)).Open("p"))
}
