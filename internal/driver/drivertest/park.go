package drivertest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// testPark parks a machine: nothing of it may run after the moment that its
// snapshot holds, unless it is let go.
func (s *suite) testPark(t *testing.T) {
	b := s.start(t, s.spec(t))
	b.become(t, "parked", api.BootCold)
	b.background(t, "i=0; while :; do i=$((i+1)); echo $i > /count; done")
	eventually(t, "the counter counts", func() bool { _, code, _ := b.run(t.Context(), "test -s /count"); return code == 0 })
	b.guest.Close()

	dir := filepath.Join(s.Dir(t), "parked")
	unpark, err := b.Park(t.Context(), dir)
	if err != nil {
		t.Fatalf("Park: %v", err)
	}
	before, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	after, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if used := after.CPU - before.CPU; used > 50*time.Millisecond {
		t.Errorf("a parked machine used %v of CPU", used)
	}
	unpark()
	unpark()
	was := b.sh(t, "cat /count")
	eventually(t, "the counter goes on", func() bool { return b.sh(t, "cat /count") != was })

	_, err = b.Park(t.Context(), dir)
	wantCode(t, err, api.CodeInvalidRequest)
	was = b.sh(t, "cat /count")
	eventually(t, "the counter goes on after an error", func() bool { return b.sh(t, "cat /count") != was })

	again := filepath.Join(s.Dir(t), "again")
	b.guest.Close()
	if _, err := b.Park(t.Context(), again); err != nil {
		t.Fatalf("Park again: %v", err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatalf("Stop of a parked machine: %v", err)
	}
	spec := s.spec(t)
	spec.Snapshot = again
	woken := s.start(t, spec)
	woken.become(t, "parked", api.BootWake)
	was = woken.sh(t, "cat /count")
	eventually(t, "the counter goes on in the woken machine", func() bool { return woken.sh(t, "cat /count") != was })

	// Rollback starts the new machine in the place of the old one, which is paused
	// until the new one answers.
	if s.caps.Pause {
		woken.guest.Close()
		if err := woken.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		back := s.spec(t)
		back.Snapshot, back.Network = again, spec.Network
		rolled := s.start(t, back)
		rolled.become(t, "parked", api.BootWake)
		rolled.sh(t, "echo here > /here")
		if err := woken.Stop(t.Context()); err != nil {
			t.Fatalf("Stop of the machine that was replaced: %v", err)
		}
		if got := rolled.sh(t, "cat /here"); got != "here" {
			t.Errorf("the machine that replaced another one answers %q", got)
		}
	}
}
