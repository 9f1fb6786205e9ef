package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

func collect(t testing.TB, s *Store) Collection {
	t.Helper()
	c, err := s.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCollect(t *testing.T) {
	t.Parallel()
	blobs := newClocked(blob.NewMemory())
	s := open(t, t.TempDir(), blobs)
	shared, own := noise(1, 2<<20), noise(2, 1<<20)
	keep(t, s, "parent", map[string][]byte{"f": shared, "g": own})
	pack(t, s, "parent")
	keep(t, s, "child", map[string][]byte{"f": shared})
	pack(t, s, "child")
	keep(t, s, "lone", map[string][]byte{"f": noise(3, 1<<20)})
	lone := pack(t, s, "lone")
	for _, id := range []string{"parent", "lone"} {
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []Collection{
		{Packs: 2},            // too young
		{Packs: 2, Marked: 1}, // the lone one
		{Packs: 2},            // it waits
		{Packs: 2, Removed: 1, RemovedBytes: lone.StoredBytes}, // Grace later
		{Packs: 1}, {Packs: 1}, // the other is the child's
	} {
		if got := collect(t, s); got != want {
			t.Errorf("collection %d did %+v, want %+v", i, got, want)
		}
		blobs.advance(s.cfg.Grace/2 + time.Second)
	}
	evictAll(t, s)
	check(t, s, "child", map[string][]byte{"f": shared})
	if got := filesIn(t, s, deletedDir); len(got) != 0 {
		t.Errorf("deleted has %v", got)
	}
}

// TestMarkedPackIsNotShared packs what a marked pack holds: it is stored again.
func TestMarkedPackIsNotShared(t *testing.T) {
	t.Parallel()
	blobs := newClocked(blob.NewMemory())
	first, second := open(t, t.TempDir(), blobs), open(t, t.TempDir(), blobs)
	files := map[string][]byte{"f": noise(1, 1<<20)}
	keep(t, first, "a", files)
	pack(t, first, "a")
	keep(t, second, "b", files)
	if p := pack(t, second, "b"); p.StoredBytes != 0 { // second knows the pack now
		t.Errorf("b stores %+v", p)
	}
	for _, d := range []struct {
		s  *Store
		id string
	}{{first, "a"}, {second, "b"}} {
		if err := d.s.Delete(t.Context(), d.id); err != nil {
			t.Fatal(err)
		}
		collect(t, d.s)
	}
	blobs.advance(first.cfg.Grace)
	if c := collect(t, first); c.Marked != 1 {
		t.Fatalf("the collection did %+v", c)
	}
	keep(t, second, "c", files)
	if p := pack(t, second, "c"); p.SharedBytes != 0 {
		t.Errorf("c shares a marked pack: %+v", p)
	}
	blobs.advance(first.cfg.Grace)
	if c := collect(t, first); c.Removed != 1 {
		t.Errorf("the collection did %+v", c)
	}
	evictAll(t, second)
	check(t, second, "c", files)
}

// TestRemovedPackIsNotShared packs on a host that has not heard that a pack which
// it knows was marked and removed since.
func TestRemovedPackIsNotShared(t *testing.T) {
	t.Parallel()
	blobs := newClocked(blob.NewMemory())
	first, second := open(t, t.TempDir(), blobs), open(t, t.TempDir(), blobs)
	files := map[string][]byte{"f": noise(1, 1<<20)}
	keep(t, first, "a", files)
	pack(t, first, "a")
	keep(t, second, "other", map[string][]byte{"f": noise(2, 1<<20)})
	pack(t, second, "other") // reads the index
	if err := first.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		collect(t, first)
		blobs.advance(first.cfg.Grace)
	}
	keep(t, second, "b", files)
	if p := pack(t, second, "b"); p.SharedBytes != 0 {
		t.Errorf("b shares a pack that is gone: %+v", p)
	}
	evictAll(t, second)
	check(t, second, "b", files)
}

// TestCollectWhilePacking marks and would remove a pack while another host packs
// a snapshot that shares it: between any two of its steps.
func TestCollectWhilePacking(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"f": noise(1, 1<<20), "g": noise(2, 1<<20)}
	for _, point := range []string{"pack.pack.before", "pack.pack.after", "pack.manifest.before", "pack.manifest.after"} {
		blobs := newClocked(blob.NewMemory())
		collector := open(t, t.TempDir(), blobs)
		keep(t, collector, "a", map[string][]byte{"f": files["f"]})
		pack(t, collector, "a")
		blobs.advance(collector.cfg.Grace)
		packer := open(t, t.TempDir(), blobs, func(c *Config) {
			c.Fault = func(at string) error {
				if at != point {
					return nil
				}
				err := collector.Delete(t.Context(), "a")
				for range 2 { // no more than the packer's time allows
					_, cerr := collector.Collect(t.Context())
					err = errors.Join(err, cerr)
					blobs.advance(collector.cfg.Grace/4 - time.Second)
				}
				return err
			}
		})
		keep(t, packer, "b", files)
		if p := pack(t, packer, "b"); p.SharedBytes != 1<<20 {
			t.Errorf("%s: b shares %+v", point, p)
		}
		for range 5 {
			collect(t, collector)
			blobs.advance(collector.cfg.Grace)
		}
		evictAll(t, packer)
		check(t, packer, "b", files)
		check(t, open(t, t.TempDir(), blobs), "b", files)
	}
}

// TestDamagedManifestStopsCollection: nobody knows what it needs. It can be
// deleted, and others go on being packed.
func TestDamagedManifestStopsCollection(t *testing.T) {
	t.Parallel()
	blobs := newClocked(blob.NewMemory())
	s := open(t, t.TempDir(), blobs)
	keep(t, s, "a", map[string][]byte{"f": noise(1, 1<<20)})
	pack(t, s, "a")
	evictAll(t, s)
	key := keysOf(t, blobs, "snapshots/manifests/a")[0]
	if err := blobs.Put(t.Context(), key, strings.NewReader("damage"), 6); err != nil {
		t.Fatal(err)
	}
	s = open(t, s.cfg.Dir, blobs)
	blobs.advance(10 * s.cfg.Grace)
	c, err := s.Collect(t.Context())
	if wantCode(t, err, api.CodeSnapshotCorrupt); c.Marked+c.Removed != 0 {
		t.Errorf("the collection did %+v", c)
	}
	keep(t, s, "b", map[string][]byte{"f": noise(1, 1<<20)})
	pack(t, s, "b")
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if c := collect(t, s); c.Marked != 1 {
		t.Errorf("the collection did %+v", c)
	}
}

// TestForeignManifestKeepsItsPacks: a host without the key still sees which packs
// an encrypted snapshot needs.
func TestForeignManifestKeepsItsPacks(t *testing.T) {
	t.Parallel()
	blobs := newClocked(blob.NewMemory())
	files := map[string][]byte{"f": noise(1, 1<<20)}
	sealed, plain := open(t, t.TempDir(), blobs, withKey), open(t, t.TempDir(), blobs)
	keep(t, sealed, "a", files)
	pack(t, sealed, "a")
	keep(t, plain, "b", files)
	if p := pack(t, plain, "b"); p.StoredBytes == 0 {
		t.Errorf("b shares encrypted chunks: %+v", p)
	}
	for range 3 {
		blobs.advance(plain.cfg.Grace)
		if c := collect(t, plain); c.Packs != 2 || c.Marked+c.Removed != 0 {
			t.Errorf("the collection did %+v", c)
		}
	}
	evictAll(t, sealed)
	check(t, sealed, "a", files)
}

// TestEvictLeastRecentlyUsed keeps what was opened last, and what is open.
func TestEvictLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), blob.NewMemory())
	for i := range 4 {
		id := fmt.Sprint("s", i)
		keep(t, s, id, map[string][]byte{"f": noise(byte(i), 1<<20)})
		if i < 3 {
			pack(t, s, id)
		}
	}
	held, err := s.Open(t.Context(), "s0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	check(t, s, "s1", map[string][]byte{"f": noise(1, 1<<20)})
	raw := func() (out []string) {
		list, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Raw {
				out = append(out, r.ID)
			}
		}
		return out
	}
	for _, step := range []struct {
		cache int64
		want  string
	}{{4 << 20, "[s0 s1 s2 s3]"}, {5 << 19, "[s0 s1 s3]"}, {1, "[s0 s3]"}} {
		s.cfg.CacheBytes = step.cache
		if err := s.evict(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(raw()); got != step.want {
			t.Errorf("a cache of %d bytes has %s, want %s", step.cache, got, step.want)
		}
	}
	if got, err := read(held); err != nil || !bytes.Equal(got["f"], noise(0, 1<<20)) {
		t.Errorf("the open one reads %v, %v", sizes(got), err)
	}
}

// TestOpenWhileEvicting opens a snapshot that was chosen to be evicted.
func TestOpenWhileEvicting(t *testing.T) {
	t.Parallel()
	var s *Store
	var src *Source
	s = open(t, t.TempDir(), blob.NewMemory(), withCache(1), func(c *Config) {
		c.Fault = func(point string) (err error) {
			if point == "evict.remove.before" {
				src, err = s.Open(t.Context(), "a")
			}
			return err
		}
	})
	files := map[string][]byte{"f": noise(1, 1<<20)}
	keep(t, s, "a", files)
	pack(t, s, "a")
	if err := s.evict(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := read(src); err != nil || !bytes.Equal(got["f"], files["f"]) || !src.Record.Raw {
		t.Errorf("it reads %v, %v", sizes(got), err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

// TestRun packs, evicts and collects by itself, and comes through a time without
// the blob store.
func TestRun(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory()}
	w.away.Store(true)
	s := open(t, t.TempDir(), w, withCache(1), withGrace(4*time.Second), func(c *Config) { c.PackAfter = time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	files := map[string][]byte{"f": noise(1, 2<<20)}
	keep(t, s, "a", files)
	time.Sleep(50 * time.Millisecond)
	if rec, err := s.Get(t.Context(), "a"); err != nil || !rec.Raw || rec.Packed {
		t.Errorf("without a blob store the record is %+v, %v", rec, err)
	}
	w.away.Store(false)
	await(t, func() bool { rec, err := s.Get(t.Context(), "a"); return err == nil && rec.Packed && !rec.Raw })
	check(t, s, "a", files)
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	await(t, func() bool { return len(keysOf(t, w, "snapshots/packs/")) == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func await(t testing.TB, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it did not happen in a minute")
		}
	}
}

// TestRunGoesOnAfterOneBadSnapshot packs the others.
func TestRunGoesOnAfterOneBadSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, blob.NewMemory(), func(c *Config) { c.PackAfter = -1 })
	keep(t, s, "bad", map[string][]byte{"f": noise(1, 100)})
	keep(t, s, "good", map[string][]byte{"f": noise(2, 100)})
	if err := s.replaceFile(s.path(rawDir, s.snaps["bad"].name(), "f"), nil, false); err != nil {
		t.Fatal(err)
	}
	s.cfg.PackAfter = time.Nanosecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	await(t, func() bool { rec, err := s.Get(t.Context(), "good"); return err == nil && rec.Packed })
	cancel()
	if err := errors.Join(<-done); err != nil && err != io.EOF {
		t.Error(err)
	}
}
