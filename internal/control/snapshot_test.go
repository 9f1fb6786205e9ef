package control_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
)

func (w *world) snapshot(id string, req api.CreateSnapshot) api.Snapshot {
	w.t.Helper()
	n, err := w.Snapshot(w.t.Context(), alice, id, req)
	must(w.t, err)
	return n
}

// nothingLeft checks that a failed snapshot left no trace.
func (w *world) nothingLeft() {
	w.t.Helper()
	rows, err := w.store.AllSnapshots(w.t.Context())
	if len(rows) != 0 || w.host.snapshotCount() != 0 || err != nil {
		w.t.Fatal(rows, w.host.snapshotCount(), err)
	}
}

func TestSnapshotLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{Env: map[string]string{"LOADED": "yes"}, MemoryMB: 300, CPU: 0.5, DiskMB: 100})
	n := w.snapshot(b.ID, api.CreateSnapshot{Name: "golden", Metadata: map[string]string{"k": "v"}})
	if !api.ValidSnapshotID(n.ID) || n.Kind != api.KindSnapshot || !n.Memory || n.SandboxID != b.ID || n.Template != "base" || n.Host != "native" ||
		n.Driver != "none" || n.MemoryMB != 300 || n.SizeBytes != 1000 || n.PauseMS != 1.5 || n.Metadata["k"] != "v" {
		t.Fatalf("%+v", n)
	}
	files := w.snapshot(b.ID, api.CreateSnapshot{Memory: ptr(false)})
	if files.Memory || files.Name != "" {
		t.Fatalf("%+v", files)
	}
	_, err := w.Snapshot(t.Context(), alice, b.ID, api.CreateSnapshot{Name: "golden"})
	wantCode(t, err, api.CodeSnapshotExists)

	must(t, w.Delete(t.Context(), alice, b.ID))
	w.restart()
	for _, name := range []string{"golden", n.ID} {
		got, err := w.GetSnapshot(t.Context(), alice, name)
		if err != nil || got.ID != n.ID || got.Name != "golden" {
			t.Fatal(got, err)
		}
		c := w.create(api.CreateSandbox{FromSnapshot: name, Driver: "auto", Template: "base", DiskMB: 100})
		if c.SnapshotID != n.ID || c.MemoryMB != 300 || c.CPU != 0.5 || c.DiskMB != 100 || c.ParentID != "" {
			t.Fatalf("%+v", c)
		}
		if res := w.sh(c.ID, "echo $LOADED"); res.Stdout != "yes\n" {
			t.Fatalf("%+v", res)
		}
	}
	if c := w.create(api.CreateSandbox{FromSnapshot: n.ID, MemoryMB: 400}); c.MemoryMB != 400 || c.CPU != 0.5 {
		t.Fatalf("%+v", c)
	}
	for field, req := range map[string]api.CreateSandbox{
		"template": {Template: "other"}, "driver": {Driver: "microvm"}, "disk_mb": {DiskMB: 200},
	} {
		req.FromSnapshot = n.ID
		_, err := w.Create(t.Context(), alice, req)
		wantCode(t, err, api.CodeInvalidRequest)
		if got := api.AsError(err).Details["field"]; got != field {
			t.Errorf("the field is %v, want %s", got, field)
		}
	}
	must(t, w.DeleteSnapshot(t.Context(), alice, "golden"))
	must(t, w.DeleteSnapshot(t.Context(), alice, files.ID))
	w.nothingLeft()
	for _, name := range []string{"golden", n.ID, "", "snap-", "a b", strings.Repeat("x", 1000)} {
		_, e1 := w.GetSnapshot(t.Context(), alice, name)
		_, _, e2 := w.ExportSnapshot(t.Context(), alice, name)
		errs := []error{e1, e2, w.DeleteSnapshot(t.Context(), alice, name)}
		if name != "" {
			_, e3 := w.Create(t.Context(), alice, api.CreateSandbox{FromSnapshot: name})
			errs = append(errs, e3)
		}
		for _, err := range errs {
			wantCode(t, err, api.CodeSnapshotNotFound)
		}
	}
}

func TestSnapshotsOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	n := w.snapshot(b.ID, api.CreateSnapshot{Name: "mine"})
	ctx := t.Context()
	for _, name := range []string{"mine", n.ID} {
		_, e1 := w.GetSnapshot(ctx, mallory, name)
		_, e2 := w.Create(ctx, mallory, api.CreateSandbox{FromSnapshot: name})
		_, _, e3 := w.ExportSnapshot(ctx, mallory, name)
		for _, err := range []error{e1, e2, e3, w.DeleteSnapshot(ctx, mallory, name)} {
			wantCode(t, err, api.CodeSnapshotNotFound)
		}
	}
	_, e1 := w.Snapshot(ctx, mallory, b.ID, api.CreateSnapshot{})
	_, e2 := w.Checkpoint(ctx, mallory, b.ID, api.Checkpoint{})
	_, e3 := w.Timeline(ctx, mallory, b.ID)
	_, e4 := w.Restore(ctx, mallory, b.ID, api.Restore{Checkpoint: n.ID})
	_, e5 := w.Fork(ctx, mallory, b.ID, api.Fork{})
	_, e6 := w.Fork(ctx, mallory, b.ID, api.Fork{Checkpoint: n.ID})
	_, e7 := w.Promote(ctx, mallory, b.ID, api.Promote{})
	_, e8 := w.Tree(ctx, mallory, b.ID)
	_, e9 := w.Hibernate(ctx, mallory, b.ID)
	_, e10 := w.Wake(ctx, mallory, b.ID)
	for _, err := range []error{e1, e2, e3, e4, e5, e6, e7, e8, e9, e10} {
		wantCode(t, err, api.CodeSandboxNotFound)
	}
	if list, err := w.Snapshots(ctx, mallory, control.SnapshotQuery{}); err != nil || len(list.Snapshots) != 0 {
		t.Fatal(list, err)
	}
	// A snapshot of one sandbox does not roll back another.
	other := w.create(api.CreateSandbox{})
	_, err := w.Restore(ctx, alice, other.ID, api.Restore{Checkpoint: n.ID})
	wantCode(t, err, api.CodeSnapshotNotFound)
}

func TestSnapshotNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	for _, name := range []string{"a b", "ä", "a/b", "snap-1", "snap-", strings.Repeat("x", 129), "a\n", "%"} {
		_, e1 := w.Snapshot(t.Context(), alice, b.ID, api.CreateSnapshot{Name: name})
		_, e2 := w.Checkpoint(t.Context(), alice, b.ID, api.Checkpoint{Name: name})
		_, e3 := w.ImportSnapshot(t.Context(), alice, name, strings.NewReader("{}"))
		for _, err := range []error{e1, e2, e3} {
			wantCode(t, err, api.CodeInvalidRequest)
			if api.AsError(err).Details["field"] != "name" {
				t.Error(name, err)
			}
		}
	}
	for _, name := range []string{"A.b-c_9", strings.Repeat("x", 128), "Snap-1", "-", "."} {
		w.snapshot(b.ID, api.CreateSnapshot{Name: name})
	}
	list, err := w.Snapshots(t.Context(), alice, control.SnapshotQuery{Limit: 3})
	must(t, err)
	rest, err := w.Snapshots(t.Context(), alice, control.SnapshotQuery{Limit: 3, Page: list.NextPage, SandboxID: b.ID, Kind: api.KindSnapshot})
	if len(list.Snapshots) != 3 || len(rest.Snapshots) != 2 || rest.NextPage != "" || err != nil {
		t.Fatal(list, rest, err)
	}
	for _, q := range []control.SnapshotQuery{{Limit: -1}, {Limit: 1001}, {Kind: "x"}, {SandboxID: "x"}, {Page: "x"}} {
		_, err := w.Snapshots(t.Context(), alice, q)
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

func TestSnapshotByState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	_, err := w.Pause(t.Context(), alice, b.ID)
	must(t, err)
	w.snapshot(b.ID, api.CreateSnapshot{})
	if st := w.status(b.ID)(); st != api.StatusPaused {
		t.Fatal("a paused sandbox is", st, "after its snapshot")
	}
	_, err = w.Hibernate(t.Context(), alice, b.ID)
	must(t, err)
	w.snapshot(b.ID, api.CreateSnapshot{})
	if st := w.status(b.ID)(); st != api.StatusRunning {
		t.Fatal("a hibernated sandbox is", st, "after its snapshot")
	}
	_, err = w.Snapshot(t.Context(), alice, w.leave(api.StatusDeleting, true, nil), api.CreateSnapshot{})
	wantCode(t, err, api.CodeSandboxState)
	_, err = w.Fork(t.Context(), alice, w.leave(api.StatusDeleting, true, nil), api.Fork{})
	wantCode(t, err, api.CodeSandboxState)
	_, err = w.Snapshot(t.Context(), alice, w.leave(api.StatusFailed, false, nil), api.CreateSnapshot{})
	wantCode(t, err, api.CodeSandboxDied)
}

func TestSnapshotFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	w.host.disk.beforeSnapshot = func(context.Context, string) error {
		return api.Errorf(api.CodeSnapshotStoreFull, "the disk is full")
	}
	_, err := w.Snapshot(t.Context(), alice, b.ID, api.CreateSnapshot{Name: "n"})
	wantCode(t, err, api.CodeSnapshotStoreFull)
	w.nothingLeft()
	ctx, leave := context.WithCancel(t.Context())
	w.host.disk.beforeSnapshot = func(ctx context.Context, _ string) error { leave(); <-ctx.Done(); return ctx.Err() }
	if _, err := w.Checkpoint(ctx, alice, b.ID, api.Checkpoint{}); err == nil {
		t.Fatal("a client that left got an answer")
	}
	w.nothingLeft()
	w.host.disk.beforeSnapshot = nil
	w.snapshot(b.ID, api.CreateSnapshot{Name: "n"}) // the name is free
	if h := w.history(b.ID); h != "running" {
		t.Fatal(h)
	}
}

// What is being made from a snapshot keeps it.
func TestSnapshotInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	n := w.snapshot(b.ID, api.CreateSnapshot{})
	point, err := w.Checkpoint(t.Context(), alice, b.ID, api.Checkpoint{})
	must(t, err)
	begun, goOn := make(chan bool), make(chan bool)
	w.host.beforeCreate = func(context.Context, host.Spec) error { begun <- true; <-goOn; return nil }
	done := make(chan error, 1)
	for _, c := range []struct {
		id   string
		make func() error
	}{
		{n.ID, func() error {
			_, err := w.Create(t.Context(), alice, api.CreateSandbox{FromSnapshot: n.ID})
			return err
		}},
		{point.ID, func() error { _, err := w.Fork(t.Context(), alice, b.ID, api.Fork{Checkpoint: point.ID}); return err }},
	} {
		go func() { done <- c.make() }()
		<-begun
		wantCode(t, w.DeleteSnapshot(t.Context(), alice, c.id), api.CodeSnapshotInUse)
		goOn <- true
		must(t, <-done)
		must(t, w.DeleteSnapshot(t.Context(), alice, c.id))
	}
	// A checkpoint in use does not keep its sandbox, and goes when it is free.
	point, err = w.Checkpoint(t.Context(), alice, b.ID, api.Checkpoint{})
	must(t, err)
	go func() { _, err := w.Create(t.Context(), alice, api.CreateSandbox{FromSnapshot: point.ID}); done <- err }()
	<-begun
	must(t, w.Delete(t.Context(), alice, b.ID))
	goOn <- true
	must(t, <-done)
	_, err = w.GetSnapshot(t.Context(), alice, point.ID)
	wantCode(t, err, api.CodeSnapshotNotFound)
	w.host.beforeCreate = nil
	w.start()
	eventually(t, "the checkpoint is gone", func() bool { return w.host.snapshotCount() == 0 })
	file, err := w.Tree(t.Context(), alice, b.ID)
	if err != nil || file.Nodes[0].Status != api.StatusDeleted {
		t.Fatal(file, err)
	}
}

// A snapshot that this host cannot restore comes with the name of one it can.
func TestIncompatibleSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	n := w.snapshot(b.ID, api.CreateSnapshot{})
	refusal := api.Errorf(api.CodeSnapshotMismatch, "the runtime differs")
	w.host.disk.refuse = map[string]error{n.ID: refusal}
	_, err := w.Create(t.Context(), alice, api.CreateSandbox{FromSnapshot: n.ID})
	wantCode(t, err, api.CodeSnapshotMismatch)
	if api.AsError(err).Details["fallback_id"] != nil {
		t.Fatal(err)
	}
	w.snapshot(b.ID, api.CreateSnapshot{Memory: ptr(false)})
	files := w.snapshot(b.ID, api.CreateSnapshot{Memory: ptr(false), Name: "files"})
	_, e1 := w.Create(t.Context(), alice, api.CreateSandbox{FromSnapshot: n.ID})
	_, e2 := w.Restore(t.Context(), alice, b.ID, api.Restore{Checkpoint: n.ID})
	_, e3 := w.Fork(t.Context(), alice, b.ID, api.Fork{Checkpoint: n.ID, Count: 2})
	for _, err := range []error{e1, e2, e3} {
		wantCode(t, err, api.CodeSnapshotMismatch)
		e := api.AsError(err)
		if e.Details["fallback_id"] != files.ID || e.Details["fallback_name"] != "files" || !strings.Contains(e.Hint, "files") || e.Message != "the runtime differs" {
			t.Fatalf("%+v", e)
		}
	}
	if w.host.count() != 1 || w.status(b.ID)() != api.StatusRunning {
		t.Fatal("something was made of it")
	}
}

func TestExportAndImport(t *testing.T) {
	t.Parallel()
	w, elsewhere := newWorld(t, control.Limits{}), newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{Env: map[string]string{"A": "b"}})
	n := w.snapshot(b.ID, api.CreateSnapshot{Name: "one"})
	got, file, err := w.ExportSnapshot(t.Context(), alice, "one")
	must(t, err)
	if got.ID != n.ID {
		t.Fatalf("%+v", got)
	}
	wantCode(t, w.DeleteSnapshot(t.Context(), alice, "one"), api.CodeSnapshotInUse)
	data, err := io.ReadAll(file)
	must(t, err)
	must(t, file.Close())
	must(t, file.Close())
	must(t, w.DeleteSnapshot(t.Context(), alice, "one"))
	in, err := elsewhere.ImportSnapshot(t.Context(), mallory, "two", strings.NewReader(string(data)))
	must(t, err)
	if in.ID == n.ID || in.Name != "two" || in.Kind != api.KindSnapshot || in.SandboxID != "" || in.Template != "base" || !in.Memory || in.MemoryMB != 512 {
		t.Fatalf("%+v", in)
	}
	c, err := elsewhere.Create(t.Context(), mallory, api.CreateSandbox{FromSnapshot: "two"})
	must(t, err)
	res, err := elsewhere.Exec(t.Context(), mallory, c.ID, api.Exec{Cmd: cmd("echo $A"), User: "root"})
	if res.Stdout != "b\n" || err != nil {
		t.Fatal(res, err)
	}
	_, err = elsewhere.ImportSnapshot(t.Context(), mallory, "two", strings.NewReader(string(data)))
	wantCode(t, err, api.CodeSnapshotExists)
	_, err = elsewhere.ImportSnapshot(t.Context(), mallory, "three", strings.NewReader("no snapshot"))
	wantCode(t, err, api.CodeInvalidRequest)
	_, err = elsewhere.GetSnapshot(t.Context(), mallory, "three")
	wantCode(t, err, api.CodeSnapshotNotFound)
}

// leaveSnapshot puts the store and the host into the state that a crash would
// leave.
func (w *world) leaveSnapshot(sandbox string, kind api.SnapshotKind, status store.SnapshotStatus, onHost bool) string {
	w.t.Helper()
	n := store.Snapshot{ID: api.NewSnapshotID(), Org: alice.Org, Kind: kind, SandboxID: sandbox, Template: "base", Driver: "none",
		Host: "native", Status: status, CreatedAt: time.Now().UTC()}
	must(w.t, w.store.CreateSnapshot(w.t.Context(), &n))
	if onHost {
		w.strayOnHost(n.ID, sandbox)
	}
	return n.ID
}

func (w *world) strayOnHost(id, sandbox string) {
	w.t.Helper()
	_, err := w.host.keep(nativeSnapshot{Snapshot: host.Snapshot{ID: id, SandboxID: sandbox, StoredBytes: 77, SizeBytes: 99}})
	must(w.t, err)
}

func TestSnapshotsAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	box := w.leave(api.StatusRunning, true, nil)
	fine := w.leaveSnapshot(api.NewID(), api.KindSnapshot, store.SnapshotReady, true)
	point := w.leaveSnapshot(box, api.KindCheckpoint, store.SnapshotReady, true)
	for _, gone := range []struct {
		sandbox string
		kind    api.SnapshotKind
		status  store.SnapshotStatus
		onHost  bool
	}{
		{box, api.KindSnapshot, store.SnapshotCreating, true},
		{box, api.KindCheckpoint, store.SnapshotCreating, false},
		{box, api.KindSnapshot, store.SnapshotDeleting, true},
		{box, api.KindCheckpoint, store.SnapshotDeleting, false},
		{box, api.KindSnapshot, store.SnapshotReady, false},                                     // lost by the host
		{api.NewID(), api.KindCheckpoint, store.SnapshotReady, true},                            // of a sandbox that is gone
		{w.leave(api.StatusDeleting, true, nil), api.KindCheckpoint, store.SnapshotReady, true}, // of one that is going
	} {
		w.leaveSnapshot(gone.sandbox, gone.kind, gone.status, gone.onHost)
	}
	w.strayOnHost(api.NewSnapshotID(), box)
	// One that is being made while rows are compared is not touched.
	begun, goOn := make(chan bool), make(chan bool)
	w.host.disk.beforeSnapshot = func(context.Context, string) error { begun <- true; <-goOn; return nil }
	made := make(chan error, 1)
	go func() { _, err := w.Snapshot(t.Context(), alice, box, api.CreateSnapshot{Name: "new"}); made <- err }()
	<-begun
	w.start()
	eventually(t, "only what is wanted is left", func() bool {
		rows, err := w.store.AllSnapshots(t.Context())
		must(t, err)
		return len(rows) == 3 && w.host.snapshotCount() == 2
	})
	goOn <- true
	must(t, <-made)
	for _, id := range []string{fine, point} {
		eventually(t, "its size is known", func() bool {
			n, err := w.store.GetSnapshot(t.Context(), id)
			must(t, err)
			return n.StoredBytes == 77 && n.SizeBytes == 99
		})
	}
	if _, err := w.GetSnapshot(t.Context(), alice, "new"); err != nil {
		t.Fatal(err)
	}
}

// What the host does not delete at once is deleted later.
func TestSnapshotDeleteIsFinishedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	n := w.snapshot(b.ID, api.CreateSnapshot{Name: "n"})
	w.host.mu.Lock()
	w.host.disk.deleteSnapshotErr = api.Errorf(api.CodeHostUnreachable, "no answer")
	w.host.mu.Unlock()
	wantCode(t, w.DeleteSnapshot(t.Context(), alice, n.ID), api.CodeHostUnreachable)
	_, err := w.GetSnapshot(t.Context(), alice, "n")
	wantCode(t, err, api.CodeSnapshotNotFound)
	w.host.mu.Lock()
	w.host.disk.deleteSnapshotErr = nil
	w.host.mu.Unlock()
	w.restart()
	w.start()
	eventually(t, "it is gone", func() bool {
		rows, err := w.store.AllSnapshots(t.Context())
		return err == nil && len(rows) == 0 && w.host.snapshotCount() == 0
	})
}
