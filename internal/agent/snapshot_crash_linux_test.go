package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// killed runs a job in an agent of its own that is killed at a point of it, starts
// the next one on what that left, has look judge it, and checks that nothing is
// left when all is deleted.
func killed(t *testing.T, job, point string, look func(w *world)) {
	t.Run(point, func(t *testing.T) {
		t.Parallel()
		s := newSetting(t)
		s.Job, s.Kill, s.ID, s.Snap = job, point, api.NewID(), api.NewSnapshotID()
		s.die(t)
		s.Kill = ""
		w := start(t, s)
		look(w)
		w.create() // it serves
		w.deleteAll()
		if err := w.DeleteSnapshot(t.Context(), s.Snap); err != nil {
			t.Errorf("delete of the snapshot: %v", err)
		}
		w.stop()
		if left := append(s.leftovers(t), s.sandboxDirs()...); len(left) != 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
}

// wantUnharmed checks that the killed agent's sandbox has the file and the process
// that were made before the kill.
func (w *world) wantUnharmed(file string) {
	w.t.Helper()
	if got := w.sh(w.setting.ID, `cat /home/user/file; kill -0 $(cat /home/user/pid) && echo alive`); got != file+"\nalive" {
		w.t.Errorf("in the sandbox: %q", got)
	}
}

// from gives the points of list beginning with the first one given.
func from(list []string, first string) []string { return list[slices.Index(list, first):] }

// TestKillDuringHibernate: afterwards the sandbox runs unharmed, or it sleeps and
// wakes whole.
func TestKillDuringHibernate(t *testing.T) {
	t.Parallel()
	sharedDir(t)
	a := New(Config{})
	all := append(points("hibernate", a.hibernateSteps()), points("hibernate", a.stopSteps())...)
	asleep := from(all, "hibernate.record.after")
	for _, point := range all {
		killed(t, "hibernate", point, func(w *world) {
			want := host.StateRunning
			if slices.Contains(asleep, point) {
				want = host.StateHibernated
			}
			wantState(w.t, w.Agent, w.setting.ID, want)
			if want == host.StateHibernated {
				if left := w.setting.leftovers(w.t); len(left) != 0 {
					// The agent's own spare slots and shells are no leftovers of it.
					left = slices.DeleteFunc(left, func(s string) bool { return !strings.HasPrefix(s, "process") })
					if len(left) != 0 {
						w.t.Errorf("a sleeping sandbox has %v", left)
					}
				}
				if _, err := w.Wake(w.t.Context(), w.setting.ID); err != nil {
					w.t.Fatalf("wake: %v", err)
				}
			} else {
				wantNoSleep(w.t, w.Agent)
			}
			w.wantUnharmed("before")
		})
	}
}

// TestKillDuringWake: afterwards the sandbox sleeps or runs, and is whole.
func TestKillDuringWake(t *testing.T) {
	t.Parallel()
	sharedDir(t)
	a := New(Config{})
	all := append(points("wake", a.reviveSteps()), "wake.retire.before", "wake.retire.after", "wake.forget")
	awake := from(all, "wake.record.after")
	for _, point := range all {
		killed(t, "wake", point, func(w *world) {
			s, err := w.Get(w.t.Context(), w.setting.ID)
			if err != nil || s.State == host.StateFailed || s.State == host.StateRunning && !slices.Contains(awake, point) {
				w.t.Fatalf("the sandbox is %+v, %v", s, err)
			}
			if _, err := w.Wake(w.t.Context(), w.setting.ID); err != nil {
				w.t.Fatalf("wake: %v", err)
			}
			w.wantUnharmed("before")
			wantNoSleep(w.t, w.Agent)
		})
	}
}

// TestKillDuringRollback: afterwards the sandbox is what it was, or what it was to
// become.
func TestKillDuringRollback(t *testing.T) {
	t.Parallel()
	sharedDir(t)
	a := New(Config{})
	all := append(points("rollback", a.reviveSteps()), "rollback.retire.before", "rollback.retire.after")
	back := from(all, "rollback.record.after")
	for _, point := range all {
		killed(t, "rollback", point, func(w *world) {
			if _, err := w.Wake(w.t.Context(), w.setting.ID); err != nil { // it may not have been loaded
				w.t.Fatalf("wake: %v", err)
			}
			want := "after"
			if slices.Contains(back, point) {
				want = "before"
			}
			w.wantUnharmed(want)
		})
	}
}

// TestKillDuringSnapshot: the sandbox goes on, and the snapshot is whole or is none.
func TestKillDuringSnapshot(t *testing.T) {
	t.Parallel()
	sharedDir(t)
	a := New(Config{})
	for _, point := range points("snapshot", a.pictureSteps()) {
		killed(t, "snapshot", point, func(w *world) {
			w.wantUnharmed("before")
			list, err := w.Snapshots(w.t.Context())
			if err != nil || (len(list) == 1) != (point == "snapshot.keep.after") {
				w.t.Fatalf("snapshots %+v, %v", list, err)
			}
			if len(list) == 1 {
				made := w.create(func(s *host.Spec) { s.Snapshot = list[0].ID })
				if got := w.sh(made.ID, "cat /home/user/file"); got != "before" {
					w.t.Errorf("in the sandbox that was made from it: %q", got)
				}
			}
		})
	}
}

// TestKillDuringFork: the parent goes on, and of the children there are whole ones
// only.
func TestKillDuringFork(t *testing.T) {
	t.Parallel()
	sharedDir(t)
	a := New(Config{})
	for _, point := range points("fork", a.forkSteps()) {
		killed(t, "fork", point, func(w *world) {
			w.wantUnharmed("before")
			list, err := w.List(w.t.Context())
			if err != nil {
				w.t.Fatal(err)
			}
			if want := point == "fork.children.after"; (len(list) == 3) != want {
				w.t.Errorf("%d sandboxes after %s", len(list), point)
			}
			for _, s := range list {
				if got := w.sh(s.ID, "echo whole"); got != "whole" {
					w.t.Errorf("in %s: %q", s.ID, got)
				}
			}
		})
	}
}
