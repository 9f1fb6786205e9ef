package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// teller writes who it believes to be, over and over: one line each time.
const teller = `echo $$ > /teller; i=0; while :; do i=$((i+1)); echo "$i $(hostname) $(cat /etc/machine-id) $(cat /run/pandastack/identity)" >> /told; done`

// told is the lines that the teller has written.
func (b *box) told(t *testing.T) []string { return strings.Split(b.sh(t, "cat /told"), "\n") }

// testHold restores a guest whose process never stops asking who it is. Until the
// guest program has been told, the process may not run; then it may see nothing of
// the machine it was copied from.
func (s *suite) testHold(t *testing.T) {
	parent := s.start(t, s.spec(t))
	parent.become(t, "parent", api.BootCold)
	oldID := parent.sh(t, "cat /etc/machine-id")
	parent.background(t, teller)
	eventually(t, "the process tells", func() bool { _, code, _ := parent.run(t.Context(), "test -s /told"); return code == 0 })
	snap := s.snapshot(t, parent)

	restored := func(t *testing.T, snap string) *box {
		spec := s.spec(t)
		spec.Snapshot = snap
		return s.start(t, spec)
	}
	stands := func(t *testing.T, b *box) int {
		t.Helper()
		before := len(b.told(t))
		time.Sleep(200 * time.Millisecond)
		if after := len(b.told(t)); after != before {
			t.Errorf("a process ran before the guest program was told who it is: %d lines, then %d", before, after)
		}
		return before
	}
	t.Run("Identity", func(t *testing.T) {
		b := restored(t, snap)
		before := stands(t, b)
		b.become(t, "child", api.BootFork)
		newID := b.sh(t, "cat /etc/machine-id")
		eventually(t, "the process goes on", func() bool { return len(b.told(t)) > before+3 })
		// The first line may have been put together on both sides of the gap.
		for _, line := range b.told(t)[before+1:] {
			if strings.Contains(line, "host-parent") || strings.Contains(line, oldID) || !strings.Contains(line, "host-child") || !strings.Contains(line, newID) {
				t.Fatalf("a restored process saw the identity of its parent: %q, machine-id was %s, is %s", line, oldID, newID)
			}
		}
	})
	t.Run("SnapshotWhileHeld", func(t *testing.T) {
		b := restored(t, s.snapshot(t, restored(t, snap)))
		before := stands(t, b)
		b.become(t, "grandchild", api.BootFork)
		eventually(t, "the process goes on", func() bool { return len(b.told(t)) > before })
	})
	t.Run("KilledWhileHeld", func(t *testing.T) {
		b := restored(t, snap)
		b.sh(t, "kill -9 $(cat /teller)")
		b.become(t, "killed", api.BootFork)
		eventually(t, "the process has ended", func() bool {
			_, code, err := b.run(t.Context(), "kill -0 $(cat /teller)")
			return err == nil && code != 0
		})
	})
	t.Run("WhileStarting", func(t *testing.T) {
		// A process that is on its way from fork to exec keeps the guest program
		// waiting, and may not be made to wait for it in turn.
		busy := s.start(t, s.spec(t))
		busy.become(t, "busy", api.BootCold)
		for range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			var starting sync.WaitGroup
			for range 3 {
				starting.Go(func() {
					for ctx.Err() == nil {
						busy.run(ctx, "true")
					}
				})
			}
			time.Sleep(50 * time.Millisecond)
			dir := filepath.Join(s.Dir(t), "busy-"+api.NewID())
			err := busy.Snapshot(t.Context(), dir)
			cancel()
			starting.Wait()
			if err != nil {
				t.Fatalf("Snapshot: %v", err)
			}
			b := restored(t, dir)
			b.become(t, "started", api.BootFork)
			b.sh(t, "true")
			if err := b.Stop(t.Context()); err != nil {
				t.Errorf("Stop: %v", err)
			}
			os.RemoveAll(dir)
		}
	})
	t.Run("StopWhileHeld", func(t *testing.T) {
		b := restored(t, snap)
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	t.Run("Concurrent", func(t *testing.T) {
		for _, id := range []string{"one", "two", "three"} {
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				b := restored(t, snap)
				before := stands(t, b)
				b.become(t, id, api.BootFork)
				eventually(t, "the process goes on", func() bool { return len(b.told(t)) > before+1 })
				if last := b.told(t); !strings.Contains(last[len(last)-1], "host-"+id) {
					t.Errorf("the process of %s says %q", id, last[len(last)-1])
				}
			})
		}
	})
}
