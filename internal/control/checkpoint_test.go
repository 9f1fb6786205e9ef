package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

func (w *world) checkpoint(id, name string) api.Snapshot {
	w.t.Helper()
	n, err := w.Checkpoint(w.t.Context(), alice, id, api.Checkpoint{Name: name})
	must(w.t, err)
	return n
}

// names are the names of a sandbox's checkpoints in order.
func (w *world) names(id string) string {
	w.t.Helper()
	line, err := w.Timeline(w.t.Context(), alice, id)
	must(w.t, err)
	var names []string
	for _, n := range line.Checkpoints {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	_, err := w.Restore(t.Context(), alice, b.ID, api.Restore{})
	wantCode(t, err, api.CodeSnapshotNotFound)
	one, two := w.checkpoint(b.ID, "one"), w.checkpoint(b.ID, "two")
	if one.Kind != api.KindCheckpoint || one.ParentID != "" || two.ParentID != one.ID {
		t.Fatalf("%+v %+v", one, two)
	}
	_, err = w.Checkpoint(t.Context(), alice, b.ID, api.Checkpoint{Name: "one"})
	wantCode(t, err, api.CodeSnapshotExists)
	another := w.create(api.CreateSandbox{})
	w.checkpoint(another.ID, "one") // names are the sandbox's own
	snap := w.snapshot(b.ID, api.CreateSnapshot{Name: "one"})
	if snap.ParentID != two.ID {
		t.Fatalf("%+v", snap)
	}
	client, err := w.Guest(t.Context(), alice, b.ID)
	must(t, err)
	for i, c := range []struct{ which, want string }{{"one", one.ID}, {two.ID, two.ID}, {"", two.ID}, {snap.ID, snap.ID}, {"one", one.ID}} {
		got, err := w.Restore(t.Context(), alice, b.ID, api.Restore{Checkpoint: c.which})
		must(t, err)
		if got.ID != b.ID || got.SnapshotID != c.want || got.Status != api.StatusRunning || w.host.disk.rolled[b.ID] != c.want || got.BootMode != api.BootRestore {
			t.Fatalf("%d: %+v", i, got)
		}
		if res := w.sh(b.ID, "echo back"); res.Stdout != "back\n" {
			t.Fatalf("%+v", res)
		}
	}
	if again, err := w.Guest(t.Context(), alice, b.ID); err != nil || again == client {
		t.Fatal("the connections of what it was are kept", err)
	}
	three := w.checkpoint(b.ID, "three")
	if three.ParentID != one.ID {
		t.Fatalf("%+v", three)
	}
	line, err := w.Timeline(t.Context(), alice, b.ID)
	if err != nil || line.Current != three.ID || w.names(b.ID) != "one two three" {
		t.Fatal(line, err)
	}
	for _, which := range []string{"nosuch", api.NewSnapshotID(), "snap-", "a b"} {
		_, err := w.Restore(t.Context(), alice, b.ID, api.Restore{Checkpoint: which})
		wantCode(t, err, api.CodeSnapshotNotFound)
	}
	// A create may start from a checkpoint, by its id.
	c := w.create(api.CreateSandbox{FromSnapshot: two.ID})
	if c.SnapshotID != two.ID {
		t.Fatalf("%+v", c)
	}
	if h := w.history(b.ID); h != "running"+strings.Repeat(" restored", 5) {
		t.Fatal(h)
	}
	must(t, w.DeleteSnapshot(t.Context(), alice, two.ID))
	// They go with their sandbox; its snapshots stay.
	must(t, w.Delete(t.Context(), alice, b.ID))
	list, err := w.Snapshots(t.Context(), alice, control.SnapshotQuery{SandboxID: b.ID})
	if err != nil || len(list.Snapshots) != 1 || list.Snapshots[0].ID != snap.ID || w.host.snapshotCount() != 2 {
		t.Fatal(list, err, w.host.snapshotCount())
	}
}

func TestRestoreByState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{TTLSeconds: ptr(600)})
	w.checkpoint(b.ID, "a")
	for _, before := range []func() (api.Sandbox, error){
		func() (api.Sandbox, error) { return w.Pause(t.Context(), alice, b.ID) },
		func() (api.Sandbox, error) { return w.Hibernate(t.Context(), alice, b.ID) },
	} {
		_, err := before()
		must(t, err)
		got, err := w.Restore(t.Context(), alice, b.ID, api.Restore{Checkpoint: "a"})
		if err != nil || got.Status != api.StatusRunning || !got.ExpiresAt.Equal(*b.ExpiresAt) {
			t.Fatal(got, err)
		}
	}
	// One that fails leaves the sandbox and the requests to it as they were.
	begun, goOn := make(chan bool), make(chan error)
	w.host.disk.beforeRollback = func(context.Context, string) error { begun <- true; return <-goOn }
	long := make(chan api.ExecResult, 1)
	started := make(chan bool)
	go func() {
		err := w.ExecStream(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("echo begun; sleep 2; echo whole"), User: "root"}, func(e api.ExecEvent) error {
			if string(e.Data) == "begun\n" {
				close(started)
			}
			if e.Result != nil {
				long <- *e.Result
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			long <- api.ExecResult{ExitCode: -1}
		}
	}()
	<-started
	failed := make(chan error, 1)
	go func() { _, err := w.Restore(t.Context(), alice, b.ID, api.Restore{}); failed <- err }()
	<-begun
	late := make(chan error, 1)
	go func() {
		_, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("true"), User: "root"})
		late <- err
	}()
	select {
	case err := <-late:
		t.Fatal("a request did not wait for the rollback:", err)
	case <-time.After(200 * time.Millisecond):
	}
	goOn <- api.Errorf(api.CodeSnapshotCorrupt, "damaged")
	wantCode(t, <-failed, api.CodeSnapshotCorrupt)
	must(t, <-late)
	if res := <-long; res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	if got, err := w.Get(t.Context(), alice, b.ID); err != nil || got.Status != api.StatusRunning {
		t.Fatal(got, err)
	}
	w.host.disk.beforeRollback = nil
	dead := w.leave(api.StatusFailed, false, nil)
	_, err := w.Restore(t.Context(), alice, dead, api.Restore{})
	wantCode(t, err, api.CodeSandboxDied)
}

func TestKeepLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{Checkpoints: &api.CheckpointPolicy{KeepLast: 2}})
	for i := range 4 {
		w.checkpoint(b.ID, fmt.Sprint(i))
	}
	if names := w.names(b.ID); names != "2 3" {
		t.Fatal(names)
	}
	_, err := w.Restore(t.Context(), alice, b.ID, api.Restore{Checkpoint: "2"})
	must(t, err)
	l, err := w.SetLifecycle(t.Context(), alice, b.ID, api.Lifecycle{Checkpoints: &api.CheckpointPolicy{KeepLast: 1}})
	if err != nil || l.Checkpoints.KeepLast != 1 {
		t.Fatal(l, err)
	}
	if names := w.names(b.ID); names != "2 3" { // it goes on from 2
		t.Fatal(names)
	}
	w.checkpoint(b.ID, "4")
	if names := w.names(b.ID); names != "4" || w.host.snapshotCount() != 1 {
		t.Fatal(names, w.host.snapshotCount())
	}
	l, err = w.SetLifecycle(t.Context(), alice, b.ID, api.Lifecycle{Checkpoints: &api.CheckpointPolicy{}})
	if err != nil || l.Checkpoints != nil {
		t.Fatal(l, err)
	}
	w.checkpoint(b.ID, "5")
	if names := w.names(b.ID); names != "4 5" {
		t.Fatal(names)
	}
	for _, bad := range []api.CheckpointPolicy{{KeepLast: -1}, {KeepLast: 10001}, {MaxAgeSeconds: -1}, {MaxAgeSeconds: 1 << 60}} {
		_, err := w.SetLifecycle(t.Context(), alice, b.ID, api.Lifecycle{Checkpoints: &bad})
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{Checkpoints: &api.CheckpointPolicy{MaxAgeSeconds: 2}})
	w.checkpoint(b.ID, "1")
	w.checkpoint(b.ID, "2")
	eventually(t, "the old one is gone", func() bool { return w.names(b.ID) == "2" })
	time.Sleep(3 * time.Second)
	if names := w.names(b.ID); names != "2" {
		t.Fatal("the sandbox goes on from it:", names)
	}
	// A policy that comes later counts for what is there.
	c := w.create(api.CreateSandbox{})
	w.checkpoint(c.ID, "1")
	w.checkpoint(c.ID, "2")
	w.checkpoint(c.ID, "3")
	_, err := w.Restore(t.Context(), alice, c.ID, api.Restore{Checkpoint: "2"})
	must(t, err)
	_, err = w.SetLifecycle(t.Context(), alice, c.ID, api.Lifecycle{Checkpoints: &api.CheckpointPolicy{MaxAgeSeconds: 3}})
	must(t, err)
	eventually(t, "the old ones are gone", func() bool { return w.names(c.ID) == "2" })
}
