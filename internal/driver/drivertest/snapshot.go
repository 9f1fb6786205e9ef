package drivertest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

func (s *suite) testSnapshot(t *testing.T) {
	t.Run("LeavesRunning", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		b.background(t, "i=0; while :; do i=$((i+1)); echo $i > /count; done")
		for range 3 {
			s.snapshot(t, b)
		}
		was := b.sh(t, "cat /count")
		eventually(t, "the source goes on", func() bool { return b.sh(t, "cat /count") != was })
	})
	t.Run("ExistingDirectory", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		dir := s.Dir(t)
		wantCode(t, b.Snapshot(t.Context(), dir), api.CodeInvalidRequest)
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the directory that was in the way is gone: %v", err)
		}
		b.sh(t, "true")
	})
	t.Run("DiskFull", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		dir := filepath.Join(s.Small(t), "snapshot")
		b.sh(t, "head -c 8000000 /dev/urandom > /dev/shm/dirty")
		wantCode(t, b.Snapshot(t.Context(), dir), api.CodeCapacity)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("a failed snapshot left its directory: %v", err)
		}
		b.sh(t, "true")
		s.snapshot(t, b)
	})
}

// template is a machine's snapshot with a file, a process with memory, and a
// hostname in it.
func (s *suite) template(t *testing.T) string {
	t.Helper()
	b := s.start(t, s.spec(t))
	b.sh(t, "echo baked > /baked")
	b.background(t, "while :; do date +%s > /clock; sleep 0.1; done")
	dir := s.snapshot(t, b)
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *suite) testRestore(t *testing.T) {
	snap := s.template(t)
	restored := func(t *testing.T) *box {
		spec := s.spec(t)
		spec.Snapshot = snap
		b := s.start(t, spec)
		if !b.Boot().Restored {
			t.Errorf("Boot = %+v after a restore", b.Boot())
		}
		return b
	}
	t.Run("NoSharedWrites", func(t *testing.T) {
		a, b := restored(t), restored(t)
		a.sh(t, "echo a > /baked; echo a > /dev/shm/x; echo a > /tmp/x")
		if got := b.sh(t, "cat /baked; ls /dev/shm /tmp"); got != "baked\n/dev/shm:\n\n/tmp:" && got != "baked\n/dev/shm:\n/tmp:" {
			t.Errorf("one restored machine sees the other's writes: %q", got)
		}
		if got := restored(t).sh(t, "cat /baked"); got != "baked" {
			t.Errorf("the snapshot changed: %q", got)
		}
	})
	t.Run("ClockAndRandomness", func(t *testing.T) {
		a, b := restored(t), restored(t)
		for _, m := range []*box{a, b} {
			sec, err := strconv.ParseInt(m.sh(t, "date +%s"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if off := time.Since(time.Unix(sec, 0)).Abs(); off > 5*time.Second {
				t.Errorf("the clock of a restored machine is off by %v", off)
			}
		}
		for _, source := range []string{"head -c 16 /dev/urandom | od -An -tx1", "cat /proc/sys/kernel/random/uuid"} {
			if x, y := a.sh(t, source), b.sh(t, source); x == y {
				t.Errorf("two restored machines read the same from %q: %s", source, x)
			}
		}
	})
	t.Run("ProcessesGoOn", func(t *testing.T) {
		b := restored(t)
		b.become(t, "goeson", api.BootFork)
		was := b.sh(t, "cat /clock")
		eventually(t, "the process of the snapshot runs", func() bool { return b.sh(t, "cat /clock") != was })
		sec, err := strconv.ParseInt(b.sh(t, "cat /clock"), 10, 64)
		if err != nil || time.Since(time.Unix(sec, 0)).Abs() > 5*time.Second {
			t.Errorf("the process of the snapshot reads the time %d, %v", sec, err)
		}
	})
	t.Run("Concurrent", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 6 {
			spec := s.spec(t)
			spec.Snapshot = snap
			wg.Go(func() {
				m, err := s.d.Start(t.Context(), spec)
				if err != nil {
					t.Errorf("Start: %v", err)
					return
				}
				if got, _, err := s.box(t, m).run(t.Context(), "cat /baked"); err != nil || got != "baked\n" {
					t.Errorf("a machine restored beside others answers %q, %v", got, err)
				}
			})
		}
		wg.Wait()
	})
	t.Run("OfRestored", func(t *testing.T) {
		b := restored(t)
		b.sh(t, "echo second > /second")
		again := s.spec(t)
		again.Snapshot = s.snapshot(t, b)
		if got := s.start(t, again).sh(t, "cat /baked /second"); got != "baked\nsecond" {
			t.Errorf("the snapshot of a restored machine holds %q", got)
		}
	})
	t.Run("Limits", func(t *testing.T) {
		spec := s.spec(t)
		spec.Snapshot = snap
		spec.Limits.MemoryBytes, spec.Limits.CPU = 512<<20, 2
		if !s.caps.ResizeOnCreate {
			_, err := s.d.Start(t.Context(), spec)
			wantCode(t, err, api.CodeUnsupported)
			return
		}
		if u, err := s.start(t, spec).Usage(t.Context()); err != nil || u.MemoryLimit != 512<<20 {
			t.Errorf("Usage of a resized machine = %+v, %v", u, err)
		}
	})
	t.Run("Damaged", func(t *testing.T) { s.testDamaged(t, snap) })
}

// testDamaged spoils each file of a snapshot: Start must refuse it or fail, say
// so with a code, and leave nothing.
func (s *suite) testDamaged(t *testing.T, snap string) {
	files, err := os.ReadDir(snap)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Leftovers()
	for _, f := range files {
		for name, spoil := range map[string]func(string) error{
			"Missing":   os.Remove,
			"Truncated": func(path string) error { return truncateHalf(path) },
			"Garbage":   func(path string) error { return os.WriteFile(path, []byte("garbage"), 0o600) },
		} {
			t.Run(name+"/"+f.Name(), func(t *testing.T) {
				spec := s.spec(t)
				spec.Snapshot = filepath.Join(s.Dir(t), "damaged-"+api.NewID())
				if err := os.CopyFS(spec.Snapshot, os.DirFS(snap)); err != nil {
					t.Fatal(err)
				}
				if err := spoil(filepath.Join(spec.Snapshot, f.Name())); err != nil {
					t.Fatal(err)
				}
				m, err := s.d.Start(t.Context(), spec)
				if err == nil {
					m.Stop(t.Context())
				}
				wantCode(t, err, api.CodeSnapshotCorrupt, api.CodeSnapshotMismatch, api.CodeBootFailed)
				if left := s.Leftovers(); !slices.Equal(left, before) {
					t.Errorf("left behind: %v, before %v", left, before)
				}
			})
		}
	}
}

func truncateHalf(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, st.Size()/2)
}

func (s *suite) testShells(t *testing.T) {
	snap := s.template(t)
	spec := s.spec(t)
	spec.Snapshot = snap
	d := s.New(t)
	d.Prepare(t.Context(), driver.Spec{Image: spec.Image, Snapshot: snap, Limits: spec.Limits}, 2)
	eventually(t, "two shells are ready or the driver has none", func() bool {
		m, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatalf("Start: %v", err)
		}
		b := s.box(t, m)
		if got := b.sh(t, "cat /baked"); got != "baked" {
			t.Errorf("a machine from a shell answers %q", got)
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(spec.Dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(spec.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return m.Boot().Shell
	})
	// A runtime puts itself in order some seconds after it got a guest. The
	// guest must not notice.
	var boxes []*box
	for range 6 {
		again := s.spec(t)
		again.Snapshot = snap
		m, err := d.Start(t.Context(), again)
		if err != nil {
			t.Fatalf("Start: %v", err)
		}
		boxes = append(boxes, s.box(t, m))
		time.Sleep(300 * time.Millisecond) // for the next shell
	}
	time.Sleep(4 * time.Second)
	for _, b := range boxes {
		if got := b.sh(t, "cat /baked"); got != "baked" {
			t.Errorf("a machine from a shell answers %q after a while", got)
		}
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatalf("Close: %v", err)
	}
}
