package snapshot

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// TestDiskFull keeps, packs, takes out and imports on a disk without room. Each
// fails with its code and leaves what was there.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("it mounts a small disk, for which it must be root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	blobs := blob.NewMemory()
	s := open(t, dir, blobs)
	good := map[string][]byte{"f": noise(1, 2<<20)}
	keep(t, s, "good", good)
	large := map[string][]byte{"f": noise(2, 8<<20)}
	_, err := s.Import(t.Context(), "b", bytes.NewReader(exported(t, large)), nil, nil)
	wantCode(t, err, api.CodeSnapshotStoreFull)
	if got := filesIn(t, s, stagingDir); len(got) != 0 {
		t.Errorf("staging has %v", got)
	}
	check(t, s, "good", good)

	other := open(t, t.TempDir(), blobs)
	small := map[string][]byte{"f": noise(3, 3<<20), "g": noise(4, 3<<20)}
	keep(t, other, "small", small)
	pack(t, other, "small")
	_, err = s.Open(t.Context(), "small")
	wantCode(t, err, api.CodeSnapshotStoreFull)
	check(t, s, "good", good)

	if err := stage(s, "c", map[string][]byte{"f": nil}); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(s.path(tmpDir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	filler.Close()
	_, err = s.Keep(t.Context(), Info{ID: "c"})
	wantCode(t, err, api.CodeSnapshotStoreFull)
	_, err = s.Pack(t.Context(), "good")
	wantCode(t, err, api.CodeSnapshotStoreFull)
	check(t, s, "good", good)
	if err := s.Delete(t.Context(), "good"); err != nil { // frees room on a full disk
		t.Error(err)
	}
}
