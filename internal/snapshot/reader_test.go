package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/blob/s3test"
)

// packed keeps, packs and evicts one snapshot of one large file.
func packed(t testing.TB, blobs blob.Store, data []byte, options ...func(*Config)) *Store {
	t.Helper()
	s := open(t, t.TempDir(), blobs, options...)
	keep(t, s, "a", map[string][]byte{"pages": data, "state": []byte("state")})
	pack(t, s, "a")
	evictAll(t, s)
	return s
}

func TestReadAt(t *testing.T) {
	t.Parallel()
	data := memory(1, 12<<20+77)
	s := packed(t, blob.NewMemory(), data)
	src, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	f := src.Files["pages"]
	r := rand.New(rand.NewPCG(1, 1))
	var wg sync.WaitGroup
	for range 8 {
		seed := r.Uint64()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 60 {
				off := r.IntN(len(data))
				buf := make([]byte, r.IntN(1<<20))
				n, err := f.ReadAt(buf, int64(off))
				want := data[off:min(len(data), off+len(buf))]
				if !bytes.Equal(buf[:n], want) || (err == io.EOF) != (len(want) < len(buf)) || err != nil && err != io.EOF {
					t.Errorf("%d bytes at %d: %d bytes, %v", len(buf), off, n, err)
				}
			}
		})
	}
	wg.Wait()
	if n, err := f.ReadAt(make([]byte, 1), int64(len(data))); n != 0 || err != io.EOF {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if _, err := f.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("before the start: no error")
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("it can be read after Close")
	}
}

// TestReadsAreFewAndShared looks at what the blob store is asked: neighbours in
// one read of bounded size, each chunk once however many want it.
func TestReadsAreFewAndShared(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory(), latency: 20 * time.Millisecond}
	data := noise(1, 8<<20)
	s := packed(t, w, data)
	src, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	w.reads.Store(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			for off := range 8 {
				if _, err := src.Files["pages"].ReadAt(buf, int64(off)<<20); err != nil || !bytes.Equal(buf, data[off<<20:(off+1)<<20]) {
					t.Errorf("read at %d MB: %v", off, err)
				}
			}
		})
	}
	wg.Wait()
	if n := w.reads.Load(); n > 24 {
		t.Errorf("8 MB took %d reads", n)
	}
	if n := w.most.Load(); n > maxRange {
		t.Errorf("a read has %d bytes", n)
	}
	if n := w.peak.Load(); n > maxReads+aheadReads {
		t.Errorf("%d reads at once", n)
	}
}

// TestOrderIsLearned reads here and there. The next start fetches that ahead, and
// then needs the blob store no more.
func TestOrderIsLearned(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory(), latency: 20 * time.Millisecond}
	data := noise(1, 64<<20)
	s := packed(t, w, data)
	offs := rand.New(rand.NewPCG(1, 1)).Perm(len(data) >> 20)[:40]
	buf := make([]byte, pageSize)
	start := func(ready func()) {
		src, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		ready()
		for _, off := range offs {
			if _, err := src.Files["pages"].ReadAt(buf, int64(off)<<20); err != nil || !bytes.Equal(buf, data[off<<20:off<<20+pageSize]) {
				t.Errorf("read: %v", err)
			}
		}
	}
	start(func() {})
	if got := filesIn(t, s, orderDir); len(got) != 1 {
		t.Fatalf("order has %v", got)
	}
	s.cache = newChunkCache(cacheLimit)
	start(func() {
		await(t, func() bool {
			s.mu.Lock()
			r := s.snaps["a"].remote
			s.mu.Unlock()
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.prefetch.learned)+len(r.flights) == 0
		})
		w.away.Store(true)
	})
	w.away.Store(false)
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if got := filesIn(t, s, orderDir); len(got) != 0 {
		t.Errorf("order has %v", got)
	}
}

// TestDamagedOrderIsIgnored: it is a hint.
func TestDamagedOrderIsIgnored(t *testing.T) {
	t.Parallel()
	data := noise(1, smallFile)
	s := packed(t, blob.NewMemory(), data)
	for _, hint := range [][]byte{{0xff}, {0xff, 0xff, 0xff, 0x7f}, make([]byte, maxOrderFile+1), {0, 0, 0}} {
		if err := s.replaceFile(s.path(orderDir, s.snaps["a"].name()), hint, false); err != nil {
			t.Fatal(err)
		}
		check(t, s, "a", map[string][]byte{"pages": data, "state": []byte("state")})
	}
}

// TestMemoryIsBounded fetches far more than the cache holds.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	data := noise(1, 16<<20)
	s := packed(t, blob.NewMemory(), data)
	s.cache = newChunkCache(1 << 20)
	check(t, s, "a", map[string][]byte{"pages": data, "state": []byte("state")})
	if s.cache.size > 1<<20 || s.cache.order.Len() != len(s.cache.byID) {
		t.Errorf("the cache has %d bytes", s.cache.size)
	}
}

// TestStoreGoesAway: a short absence is bridged, a long one is an error that ends
// with it.
func TestStoreGoesAway(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory()}
	data := noise(1, 8<<20)
	s := packed(t, w, data)
	src, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	w.away.Store(true)
	time.AfterFunc(100*time.Millisecond, func() { w.away.Store(false) })
	buf := make([]byte, pageSize)
	if _, err := src.Files["pages"].ReadAt(buf, 0); err != nil || !bytes.Equal(buf, data[:pageSize]) {
		t.Errorf("read: %v", err)
	}
	w.away.Store(true)
	_, err = src.Files["pages"].ReadAt(buf, 5<<20)
	wantCode(t, err, api.CodeSnapshotStore)
	w.away.Store(false)
	if _, err := src.Files["pages"].ReadAt(buf, 5<<20); err != nil || !bytes.Equal(buf, data[5<<20:5<<20+pageSize]) {
		t.Errorf("read: %v", err)
	}
}

// TestCloseEndsReads closes a source while its reads wait for a store that does
// not answer.
func TestCloseEndsReads(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory()}
	s := packed(t, w, noise(1, 8<<20))
	src, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	w.away.Store(true)
	failed := make(chan error)
	go func() {
		_, err := src.Files["pages"].ReadAt(make([]byte, 1<<20), 1<<20)
		failed <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := errors.Join(src.Close(), src.Close()); err != nil {
		t.Error(err)
	}
	if <-failed == nil {
		t.Error("the read did not fail")
	}
}

// TestDeleteWhileServed reads a packed snapshot that was deleted meanwhile.
func TestDeleteWhileServed(t *testing.T) {
	t.Parallel()
	blobs := newClocked(blob.NewMemory())
	data := noise(1, 8<<20)
	s := packed(t, blobs, data)
	src, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		blobs.advance(s.cfg.Grace + time.Minute)
		if _, err := s.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got, err := read(src); err != nil || !bytes.Equal(got["pages"], data) || string(got["state"]) != "state" {
		t.Errorf("it reads %v, %v", sizes(got), err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	for range 3 {
		blobs.advance(s.cfg.Grace + time.Minute)
		if _, err := s.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := keysOf(t, blobs, ""); len(got) != 1 {
		t.Errorf("the blob store has %v", got)
	}
}

// TestS3 packs to and starts from a real S3 server.
func TestS3(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds an S3 server")
	}
	server := s3test.New(t)
	blobs := server.Open("some/prefix")
	data := memory(1, 40<<20)
	s := packed(t, blobs, data, withKey)
	files := map[string][]byte{"pages": data, "state": []byte("state")}
	check(t, s, "a", files)
	check(t, open(t, t.TempDir(), blobs, withKey), "a", files)
	_, err := s.Open(t.Context(), "none")
	wantCode(t, err, api.CodeSnapshotNotFound)
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	s.cfg.Grace = 4 * time.Second
	var removed int
	for until := time.Now().Add(time.Minute); removed == 0 && time.Now().Before(until); time.Sleep(time.Second) {
		c, err := s.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		removed += c.Removed
	}
	if got := fmt.Sprint(keysOf(t, blobs, "")); got != "[snapshots/clock]" {
		t.Errorf("the blob store has %v", got)
	}
	server.Stop()
	_, err = s.Open(t.Context(), "none")
	wantCode(t, err, api.CodeSnapshotStore)
}
