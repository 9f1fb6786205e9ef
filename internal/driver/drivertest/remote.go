package drivertest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// slow is a file that takes its time, counts, and breaks off after some reads.
type slow struct {
	f     *os.File
	took  time.Duration
	after int64 // reads until it fails; 0 never
	reads atomic.Int64
}

var errAway = errors.New("the store is away")

// ReadAt implements io.ReaderAt.
func (s *slow) ReadAt(b []byte, off int64) (int, error) {
	if n := s.reads.Add(1); s.after > 0 && n > s.after {
		return 0, errAway
	}
	time.Sleep(s.took)
	return s.f.ReadAt(b, off)
}

// remote moves the largest file of a snapshot out of its directory, and gives what
// serves it.
func (s *suite) remote(t *testing.T, snap string, took time.Duration, after int64) (dir string, file *slow, remote map[string]io.ReaderAt) {
	t.Helper()
	dir = filepath.Join(s.Dir(t), "partial-"+api.NewID())
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(snap)
	if err != nil {
		t.Fatal(err)
	}
	var largest string
	var size int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > size {
			largest, size = e.Name(), info.Size()
		}
		if err := os.Link(filepath.Join(snap, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, largest))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := os.Remove(filepath.Join(dir, largest)); err != nil {
		t.Fatal(err)
	}
	file = &slow{f: f, took: took, after: after}
	return dir, file, map[string]io.ReaderAt{largest: file}
}

// large is a snapshot with memory of 64 MiB that has a known content.
func (s *suite) large(t *testing.T) (snap, sum string) {
	t.Helper()
	spec := s.spec(t)
	spec.Limits = largeLimits
	b := s.start(t, spec)
	b.sh(t, "head -c 64000000 /dev/urandom > /dev/shm/large")
	sum = b.sh(t, "md5sum < /dev/shm/large")
	return s.snapshot(t, b), sum
}

var largeLimits = driver.Limits{CPU: 2, MemoryBytes: 512 << 20, DiskBytes: 64 << 20, Tasks: 600}

// testRemote starts machines whose memory is elsewhere.
func (s *suite) testRemote(t *testing.T) {
	snap, sum := s.large(t)
	start := func(t *testing.T, dir string, remote map[string]io.ReaderAt) (driver.Spec, *box) {
		spec := s.spec(t)
		spec.Limits, spec.Snapshot, spec.Remote = largeLimits, dir, remote
		return spec, s.start(t, spec)
	}
	t.Run("Local", func(t *testing.T) {
		_, b := start(t, snap, nil)
		if got := b.sh(t, "md5sum < /dev/shm/large"); got != sum {
			t.Errorf("the memory of a restored machine is another: %s, not %s", got, sum)
		}
		if err := b.Loaded(t.Context()); err != nil {
			t.Errorf("Loaded: %v", err)
		}
	})
	t.Run("Slow", func(t *testing.T) {
		dir, file, remote := s.remote(t, snap, 20*time.Millisecond, 0)
		_, b := start(t, dir, remote)
		b.sh(t, "true")
		if got := b.sh(t, "md5sum < /dev/shm/large"); got != sum {
			t.Errorf("memory that came from elsewhere is another: %s, not %s", got, sum)
		}
		if err := b.Loaded(t.Context()); err != nil {
			t.Fatalf("Loaded: %v", err)
		}
		was := file.reads.Load()
		file.after = 1 // from now on it fails
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if got := b.sh(t, "md5sum < /dev/shm/large"); got != sum || file.reads.Load() != was {
			t.Errorf("a loaded machine needs its snapshot: %s, %d reads, then %d", got, was, file.reads.Load())
		}
		if u, err := b.Usage(t.Context()); err != nil || u.MemoryBytes < 64<<20 {
			t.Errorf("the memory that was loaded is not counted as the machine's: %+v, %v", u, err)
		}
		m, err := s.New(t).Attach(t.Context(), b.Handle())
		if err != nil {
			t.Fatalf("Attach to a loaded machine: %v", err)
		}
		if err := m.Loaded(t.Context()); err != nil {
			t.Errorf("Loaded of an attached machine: %v", err)
		}
	})
	t.Run("SnapshotWhileLoading", func(t *testing.T) {
		dir, _, remote := s.remote(t, snap, 20*time.Millisecond, 0)
		_, b := start(t, dir, remote)
		again := s.snapshot(t, b)
		_, c := start(t, again, nil)
		if got := c.sh(t, "md5sum < /dev/shm/large"); got != sum {
			t.Errorf("the snapshot of a machine that was still loading has another memory: %s, not %s", got, sum)
		}
	})
	t.Run("StopWhileLoading", func(t *testing.T) {
		before := s.Leftovers()
		dir, _, remote := s.remote(t, snap, 200*time.Millisecond, 0)
		_, b := start(t, dir, remote)
		b.guest.Close()
		began := time.Now()
		if err := b.Stop(t.Context()); err != nil {
			t.Fatalf("Stop: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Stop of a loading machine took %v", took)
		}
		if err := b.Loaded(t.Context()); err == nil {
			t.Error("Loaded of a machine that was stopped before is no error")
		}
		if left := s.Leftovers(); len(left) > len(before) {
			t.Errorf("left behind: %v, before %v", left, before)
		}
	})
	t.Run("Fails", func(t *testing.T) { s.testRemoteFails(t, snap) })
	t.Run("Missing", func(t *testing.T) {
		dir, _, _ := s.remote(t, snap, 0, 0)
		spec := s.spec(t)
		spec.Limits, spec.Snapshot = largeLimits, dir
		_, err := s.d.Start(t.Context(), spec)
		wantCode(t, err, api.CodeSnapshotCorrupt)
	})
}

// testRemoteFails breaks the store at several moments of a restore: either Start
// says so, or the machine ends, says why, and Loaded gives the error.
func (s *suite) testRemoteFails(t *testing.T, snap string) {
	before := s.Leftovers()
	for _, after := range []int64{1, 8, 30} {
		dir, _, remote := s.remote(t, snap, 10*time.Millisecond, after)
		spec := s.spec(t)
		spec.Limits, spec.Snapshot, spec.Remote = largeLimits, dir, remote
		m, err := s.d.Start(t.Context(), spec)
		if err != nil {
			if !errors.Is(err, errAway) {
				t.Errorf("Start from a store that fails after %d reads: %v", after, err)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := m.Loaded(ctx); !errors.Is(err, errAway) {
			t.Errorf("Loaded of a machine whose store fails after %d reads: %v", after, err)
		}
		exit, err := m.Wait(ctx)
		if err != nil || exit.Reason == "" {
			t.Errorf("a machine without its memory does not end: %+v, %v", exit, err)
		}
		cancel()
		t.Logf("after %d reads: %s", after, exit.Reason)
		if err := m.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	if left := s.Leftovers(); len(left) > len(before) {
		t.Errorf("left behind: %v, before %v", left, before)
	}
}
