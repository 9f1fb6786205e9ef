package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

func TestKeepOpenDelete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, nil)
	files := map[string][]byte{"state": []byte("small"), "pages": memory(1, 5<<20), "empty": {}}
	rec := keep(t, s, "snap-a", files)
	if rec.SizeBytes != 5<<20+5 || !rec.Raw || rec.Packed || string(rec.Data) != `{"of":"snap-a"}` {
		t.Errorf("the record is %+v", rec)
	}
	check(t, s, "snap-a", files)
	if got := filesIn(t, s, stagingDir); len(got) != 0 {
		t.Errorf("staging has %v", got)
	}

	s = open(t, dir, nil)
	check(t, s, "snap-a", files)
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != "snap-a" || !list[0].CreatedAt.Equal(rec.CreatedAt) {
		t.Errorf("the next process lists %+v, %v", list, err)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "snap-a"); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []*Store{s, open(t, dir, nil)} {
		_, err := s.Open(t.Context(), "snap-a")
		wantCode(t, err, api.CodeSnapshotNotFound)
		_, err = s.Get(t.Context(), "snap-a")
		wantCode(t, err, api.CodeSnapshotNotFound)
		for _, dir := range []string{rawDir, localDir, deletedDir, tmpDir} {
			if got := filesIn(t, s, dir); len(got) != 0 {
				t.Errorf("%s has %v", dir, got)
			}
		}
	}
}

func TestKeepRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	keep(t, s, "sleep-x", map[string][]byte{"f": []byte("1")})
	_, err := tryKeep(t.Context(), s, "sleep-x", map[string][]byte{"f": []byte("2")})
	wantCode(t, err, api.CodeSnapshotExists)
	if err := s.Discard("sleep-x"); err != nil {
		t.Error(err)
	}
	check(t, s, "sleep-x", map[string][]byte{"f": []byte("1")})

	for _, id := range []string{"", "../x", "A", "a.b", "a/b", strings.Repeat("a", 65)} {
		if _, err := s.Keep(t.Context(), Info{ID: id}); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("the id %q: %v", id, err)
		}
		if err := s.Delete(t.Context(), id); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
		if err := s.Discard(id); err != nil {
			t.Errorf("discard %q: %v", id, err)
		}
	}
	if _, err := s.Keep(t.Context(), Info{ID: "never-staged"}); err == nil {
		t.Error("nothing was kept")
	}
	if err := os.MkdirAll(filepath.Join(s.Stage("deep"), "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Keep(t.Context(), Info{ID: "deep"}); err == nil {
		t.Error("a directory was kept")
	}
	if err := os.Mkdir(s.Stage("link"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(s.Stage("link"), "f")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Keep(t.Context(), Info{ID: "link"}); err == nil {
		t.Error("a link was kept")
	}
}

// TestIDIsUsedAgain deletes a snapshot that is open and keeps another with the
// same id, as hibernating a sandbox twice does. Each source has its own bytes.
func TestIDIsUsedAgain(t *testing.T) {
	t.Parallel()
	for _, blobs := range []blob.Store{nil, blob.NewMemory()} {
		dir := t.TempDir()
		s := open(t, dir, blobs)
		first, second := map[string][]byte{"f": []byte("first")}, map[string][]byte{"f": []byte("second")}
		keep(t, s, "sleep-x", first)
		src, err := s.Open(t.Context(), "sleep-x")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), "sleep-x"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Open(t.Context(), "sleep-x")
		wantCode(t, err, api.CodeSnapshotNotFound)
		keep(t, s, "sleep-x", second)
		check(t, s, "sleep-x", second)
		if got, err := read(src); err != nil || !bytes.Equal(got["f"], first["f"]) {
			t.Errorf("the deleted snapshot reads %q, %v", got["f"], err)
		}
		for range 2 {
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		}
		check(t, s, "sleep-x", second)
		if got := filesIn(t, s, rawDir); len(got) != 1 {
			t.Errorf("raw has %v", got)
		}
		check(t, open(t, dir, blobs), "sleep-x", second)
	}
}

// TestClockGoesBack keeps an id again that was deleted at a later time.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	dir, blobs := t.TempDir(), blob.NewMemory()
	s := open(t, dir, blobs)
	if err := s.noteDeleted("a", generationAt(time.Now().Add(time.Hour))+"ffff"); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"f": []byte("x")}
	for range 2 {
		s = open(t, dir, blobs)
		keep(t, s, "a", files)
		pack(t, s, "a")
		s = open(t, dir, blobs)
		collect(t, s)
		evictAll(t, s)
		check(t, s, "a", files)
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedRawFormIsCorrupt(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	keep(t, s, "a", map[string][]byte{"f": noise(1, 100), "g": nil})
	path := s.path(rawDir, s.snaps["a"].name(), "f")
	if err := os.Truncate(path, 99); err != nil {
		t.Fatal(err)
	}
	_, err := s.Open(t.Context(), "a")
	wantCode(t, err, api.CodeSnapshotCorrupt)
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if got := filesIn(t, s, rawDir); len(got) != 0 {
		t.Errorf("raw has %v", got)
	}
}

// TestAllAtOnce keeps, opens, packs, evicts, exports and deletes the same ids
// from many sides. Whoever gets a source reads whole bytes.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), blob.NewMemory(), withCache(1))
	var wg sync.WaitGroup
	names := []string{"a", "b", "c"}
	files := map[string]map[string][]byte{}
	for i, id := range names {
		files[id] = map[string][]byte{"small": []byte(id), "large": memory(byte(i), smallFile+i)}
	}
	allowed := func(err error, codes ...api.Code) {
		for _, c := range append(codes, api.CodeSnapshotNotFound) {
			if err == nil || api.CodeOf(err) == c {
				return
			}
		}
		t.Error(err)
	}
	for i := range 9 {
		id := names[i%3]
		wg.Go(func() {
			for range 4 {
				if i < 3 {
					_, err := tryKeep(t.Context(), s, id, files[id])
					allowed(err, api.CodeSnapshotExists)
					allowed(s.Discard(id))
				}
				if src, err := s.Open(t.Context(), id); err != nil {
					allowed(err)
				} else {
					got, err := read(src)
					if err != nil || !bytes.Equal(got["large"], files[id]["large"]) || !bytes.Equal(got["small"], files[id]["small"]) {
						t.Errorf("%s reads %v, %v", id, sizes(got), err)
					}
					allowed(src.Close())
				}
				_, err := s.Pack(t.Context(), id)
				allowed(err)
				allowed(s.evict(t.Context()))
				if i >= 6 {
					allowed(s.Delete(t.Context(), id))
				}
				_, err = s.Collect(t.Context())
				allowed(err)
			}
		})
	}
	wg.Wait()
	for _, id := range names {
		if err := s.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{rawDir, localDir, deletedDir, stagingDir, tmpDir, orderDir} {
		if got := filesIn(t, s, dir); len(got) != 0 {
			t.Errorf("%s has %v", dir, got)
		}
	}
	if got := keysOf(t, s.cfg.Blobs, "snapshots/manifests/"); len(got) != 0 {
		t.Errorf("the blob store has %v", got)
	}
}
