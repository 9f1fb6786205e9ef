package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

func wantCode(t *testing.T, err error, want api.Code) {
	t.Helper()
	if err == nil || api.CodeOf(err) != want {
		t.Errorf("error %v, want code %s", err, want)
	}
}

// TestManyAtOnce does everything at once to sandboxes that also die; at the end
// nothing is held.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, n := startFake(t, d)
	ctx := t.Context()
	changes, err := a.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range changes {
		}
	}()
	ids := make([]string, 8)
	for i := range ids {
		ids[i] = api.NewID()
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 40 {
				act(ctx, a, d, ids[rand.IntN(len(ids))])
			}
		})
	}
	wg.Wait()
	for _, s := range a.all() { // ids, and their forks
		if err := a.Delete(ctx, s.id); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	wantNoSleep(t, a)
	n.mu.Lock()
	held := len(n.taken)
	n.mu.Unlock()
	entries, _ := os.ReadDir(a.journal.root)
	if held != 0 || d.count() != 0 || len(a.all()) != 0 || len(entries) != 0 {
		t.Errorf("%d slots, %d machines, %d sandboxes and %d directories are left", held, d.count(), len(a.all()), len(entries))
	}
}

// act does one random thing to a sandbox; whether it exists is up to chance.
func act(ctx context.Context, a *Agent, d *fakeDriver, id string) {
	switch rand.IntN(13) {
	case 0, 1:
		_, _ = a.Create(ctx, specFor(id))
	case 2:
		short, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
		defer cancel()
		_, _ = a.Create(short, specFor(id))
	case 3:
		_ = a.Delete(ctx, id)
	case 4:
		if m := d.machine(id); m != nil {
			m.end()
		}
	case 5:
		_ = errors.Join(a.Pause(ctx, id), a.Resume(ctx, id))
	case 6:
		_, _ = a.List(ctx)
		_, _ = a.Usage(ctx, id)
	case 7:
		if c, err := a.Dial(ctx, id, api.InternalPort); err == nil {
			c.Close()
		}
	case 8:
		_ = a.Hibernate(ctx, id)
	case 9, 10:
		_, _ = a.Wake(ctx, id)
	case 11:
		_, _ = a.Fork(ctx, id, []host.Spec{specFor(api.NewID()), specFor(api.NewID())})
	case 12:
		snap := api.NewSnapshotID()
		if _, err := a.Snapshot(ctx, id, host.SnapshotSpec{ID: snap, Memory: rand.IntN(2) == 0}); err == nil {
			_, _ = a.Rollback(ctx, id, snap)
			_ = a.DeleteSnapshot(ctx, snap)
		}
	}
}

func TestCallsWaitForTheStart(t *testing.T) {
	t.Parallel()
	a := New(Config{Dir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := a.List(ctx)
	if api.CodeOf(err) != api.CodeTimeout {
		t.Errorf("a call before Run: %v", err)
	}
}

func TestAStartThatFailsIsTold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := New(Config{Dir: filepath.Join(file, "sub")})
	if err := a.Run(t.Context()); err == nil {
		t.Fatal("Run in an impossible directory succeeded")
	}
	<-a.Started()
	_, err := a.Info(t.Context())
	if api.CodeOf(err) != api.CodeHostSetup {
		t.Errorf("a call after a failed start: %v", err)
	}
}

// TestASnapshotThatFailsToBoot is tried again, then thrown away and baked anew;
// one failure alone throws nothing away.
func TestASnapshotThatFailsToBoot(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		code          api.Code
		failures      int
		bakes, starts int
		want          api.Code
	}{
		{"once", api.CodeBootFailed, 1, 1, 2, ""},
		{"refused", api.CodeSnapshotMismatch, 1, 2, 2, ""},
		{"always", api.CodeSnapshotCorrupt, 99, 2, 2, api.CodeSnapshotCorrupt},
		{"another reason", api.CodeCapacity, 1, 1, 1, api.CodeCapacity},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDriver()
			failures := test.failures
			d.refuse = func(s driver.Spec) error {
				if s.Snapshot == "" || failures == 0 {
					return nil
				}
				failures--
				return api.Errorf(test.code, "it does not start")
			}
			a, _ := startFake(t, d)
			sb, err := a.Create(t.Context(), specFor(api.NewID()))
			if test.want == "" && (err != nil || sb.BootMode != api.BootRestore) {
				t.Errorf("create: %+v, %v", sb, err)
			}
			if test.want != "" && api.CodeOf(err) != test.want {
				t.Errorf("error %v, want %s", err, test.want)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			bakes, starts := 0, 0
			for _, s := range d.starts {
				if s.Snapshot == "" {
					bakes++
				} else {
					starts++
				}
			}
			if bakes != test.bakes || starts != test.starts {
				t.Errorf("%d bakes and %d starts, want %d and %d", bakes, starts, test.bakes, test.starts)
			}
			if d.prepared != test.bakes {
				t.Errorf("shells were asked for %d times, want %d", d.prepared, test.bakes)
			}
		})
	}
}

func TestADriverWithoutSnapshotsStartsCold(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	d.capabilities = driver.Capabilities{}
	a, _ := startFake(t, d)
	sb, err := a.Create(t.Context(), specFor(api.NewID()))
	if err != nil || sb.BootMode != api.BootCold || sb.State != host.StateRunning {
		t.Errorf("create: %+v, %v", sb, err)
	}
	if info, err := a.Info(t.Context()); err != nil || !info.Ready {
		t.Errorf("info %+v, %v", info, err)
	}
}
