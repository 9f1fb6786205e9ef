package hosttest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var snapshotChecks = []check{
	{"SnapshotIsRecordedAndForgotten", snapshotIsRecordedAndForgotten},
	{"CaptureKeepsConnections", captureKeepsConnections},
	{"SnapshotOutlivesItsSource", snapshotOutlivesItsSource},
	{"SandboxOutlivesItsSnapshot", sandboxOutlivesItsSnapshot},
	{"RollbackKeepsIDAndAddress", rollbackKeepsIDAndAddress},
	{"RollbackThatFailsChangesNothing", rollbackThatFailsChangesNothing},
	{"SnapshotRefusals", snapshotRefusals},
	{"UnknownSnapshotsAreNotFound", unknownSnapshotsAreNotFound},
}

// snapshotSpec names a snapshot that the end of the check deletes.
func (s *suite) snapshotSpec(t *testing.T, memory bool) host.SnapshotSpec {
	t.Helper()
	spec := host.SnapshotSpec{ID: api.NewSnapshotID(), Memory: memory}
	s.deleteSnapshotLater(t, spec.ID)
	return spec
}

func (s *suite) deleteSnapshotLater(t *testing.T, id string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := s.host.DeleteSnapshot(ctx, id); err != nil {
			t.Errorf("DeleteSnapshot: %v", err)
		}
	})
}

// snapshot takes a snapshot of a sandbox.
func (s *suite) snapshot(t *testing.T, id string, memory bool) host.Snapshot {
	t.Helper()
	snap, err := s.host.Snapshot(deadline(t), id, s.snapshotSpec(t, memory))
	if err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	return snap
}

// from is a sandbox to create from a snapshot.
func (s *suite) from(snapshot string) host.Spec {
	return host.Spec{ID: api.NewID(), Token: "token-" + api.NewID(), Snapshot: snapshot}
}

func (s *suite) snapshotListed(t *testing.T, id string) bool {
	t.Helper()
	list, err := s.host.Snapshots(deadline(t))
	if err != nil {
		t.Fatalf("Snapshots: %v", err)
	}
	return slices.ContainsFunc(list, func(snap host.Snapshot) bool { return snap.ID == id })
}

func (s *suite) wantNoSnapshot(t *testing.T, id string) {
	t.Helper()
	_, err := s.host.GetSnapshot(deadline(t), id)
	wantCode(t, "GetSnapshot", err, api.CodeSnapshotNotFound)
	if s.snapshotListed(t, id) {
		t.Error("a snapshot that GetSnapshot does not know is in Snapshots")
	}
}

func snapshotIsRecordedAndForgotten(t *testing.T, s *suite) {
	spec := s.spec()
	before := time.Now()
	sb := s.create(t, spec)
	g := s.guest(t, spec)
	for _, memory := range []bool{true, false} {
		g.write(t, mark, "kept")
		snap := s.snapshot(t, spec.ID, memory)
		if snap.SandboxID != spec.ID || snap.Memory != memory || snap.Template != sb.Template || snap.Driver != sb.Driver ||
			snap.CPU != sb.CPU || snap.MemoryMB != sb.MemoryMB || snap.DiskMB != sb.DiskMB {
			t.Errorf("snapshot %+v of %+v", snap, sb)
		}
		if d := snap.CreatedAt.Sub(before); snap.SizeBytes <= 0 || snap.PauseMS < 0 || d < -time.Hour || d > time.Hour {
			t.Errorf("snapshot %+v", snap)
		}
		got, err := s.host.GetSnapshot(deadline(t), snap.ID)
		got.StoredBytes = snap.StoredBytes // grows when it is packed
		if err != nil || !got.CreatedAt.Equal(snap.CreatedAt) {
			t.Errorf("GetSnapshot gives %+v, %v", got, err)
		}
		if got.CreatedAt = snap.CreatedAt; got != snap {
			t.Errorf("GetSnapshot gives %+v, Snapshot gave %+v", got, snap)
		}
		if !s.snapshotListed(t, snap.ID) {
			t.Error("not in Snapshots")
		}
		s.wantState(t, spec.ID, host.StateRunning)
		g.wantFile(t, mark, "kept")
		_, err = s.host.Snapshot(deadline(t), spec.ID, host.SnapshotSpec{ID: snap.ID, Memory: memory})
		wantCode(t, "Snapshot of an id that exists", err, api.CodeSnapshotExists)
		for range 2 {
			if err := s.host.DeleteSnapshot(deadline(t), snap.ID); err != nil {
				t.Fatal(err)
			}
		}
		s.wantNoSnapshot(t, snap.ID)
	}
}

// captureKeepsConnections speaks over one connection before and after its sandbox
// was captured: who goes on does so with its connections.
func captureKeepsConnections(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx := deadline(t)
	conn, err := s.host.Dial(ctx, spec.ID, api.InternalPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	answers := bufio.NewReader(conn)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"a pause", func() error { return errors.Join(s.host.Pause(ctx, spec.ID), s.host.Resume(ctx, spec.ID)) }},
		{"a snapshot of files", func() error { _, err := s.host.Snapshot(ctx, spec.ID, s.snapshotSpec(t, false)); return err }},
		{"a snapshot", func() error { _, err := s.host.Snapshot(ctx, spec.ID, s.snapshotSpec(t, true)); return err }},
		{"a fork", func() error { _, err := s.host.Fork(ctx, spec.ID, s.children(t, 1)); return err }},
		{"a snapshot in a pause", func() error { return s.whilePaused(t, spec.ID, true) }},
		{"a snapshot of files in a pause", func() error { return s.whilePaused(t, spec.ID, false) }},
		{"both in a pause", func() error { return s.whilePaused(t, spec.ID, true, false) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		upload := "POST " + fileTarget(mark) + " HTTP/1.1\r\nHost: sandbox\r\nX-Access-Token: " + spec.Token + "\r\nContent-Type: application/octet-stream\r\nContent-Length: 1\r\n\r\nx"
		if _, err := io.WriteString(conn, upload); err != nil {
			t.Fatalf("writing after %s: %v", step.name, err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("reading after %s: %v", step.name, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("after %s: %s, %v", step.name, resp.Status, err)
		}
	}
}

// whilePaused takes snapshots of a sandbox in one pause.
func (s *suite) whilePaused(t *testing.T, id string, memory ...bool) error {
	t.Helper()
	if err := s.host.Pause(deadline(t), id); err != nil {
		return err
	}
	for _, m := range memory {
		s.snapshot(t, id, m)
	}
	return s.host.Resume(deadline(t), id)
}

func snapshotOutlivesItsSource(t *testing.T, s *suite) {
	spec := s.spec()
	spec.Env = map[string]string{"KEPT": "yes"}
	sb := s.create(t, spec)
	g := s.guest(t, spec)
	g.write(t, mark, "at the time")
	if err := s.host.Pause(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	snaps := []host.Snapshot{s.snapshot(t, spec.ID, true), s.snapshot(t, spec.ID, false)}
	s.wantState(t, spec.ID, host.StatePaused)
	if err := s.host.Resume(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	g.write(t, mark, "later")
	g.write(t, mark+"2", "later")
	if err := s.host.Delete(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	s.wantGone(t, spec.ID)
	for _, snap := range snaps {
		for range 2 {
			from := s.from(snap.ID)
			made := s.create(t, from)
			if made.State != host.StateRunning || made.Template != sb.Template || made.Driver != sb.Driver || made.DiskMB != sb.DiskMB || made.MemoryMB != sb.MemoryMB {
				t.Errorf("made of %+v: %+v", snap, made)
			}
			if want := map[bool]api.BootMode{true: api.BootRestore, false: api.BootCold}[snap.Memory]; made.BootMode != want {
				t.Errorf("boot mode %q of a snapshot with memory %v", made.BootMode, snap.Memory)
			}
			child := s.guest(t, from)
			child.wantFile(t, mark, "at the time")
			child.wantFile(t, mark+"2", "")
			child.wantTokenNeeded(t)
			child.write(t, mark, "of a copy") // the next has nothing of it
		}
	}
}

func sandboxOutlivesItsSnapshot(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	s.guest(t, spec).write(t, mark, "kept")
	for _, memory := range []bool{true, false} {
		snap := s.snapshot(t, spec.ID, memory)
		from := s.from(snap.ID)
		s.create(t, from)
		if err := s.host.DeleteSnapshot(deadline(t), snap.ID); err != nil {
			t.Fatal(err)
		}
		s.wantNoSnapshot(t, snap.ID)
		g := s.guest(t, from)
		g.wantFile(t, mark, "kept")
		if err := s.host.Hibernate(deadline(t), from.ID); err != nil {
			t.Fatal(err)
		}
		s.wake(t, from.ID)
		s.guest(t, from).wantFile(t, mark, "kept")
	}
}

func rollbackKeepsIDAndAddress(t *testing.T, s *suite) {
	spec := s.spec()
	spec.Env = map[string]string{"KEPT": "yes"}
	sb := s.create(t, spec)
	s.guest(t, spec).write(t, mark, "first")
	snaps := []host.Snapshot{s.snapshot(t, spec.ID, true), s.snapshot(t, spec.ID, false)}
	states := map[string]func() error{
		"running":    func() error { return nil },
		"paused":     func() error { return s.host.Pause(deadline(t), spec.ID) },
		"hibernated": func() error { return s.host.Hibernate(deadline(t), spec.ID) },
	}
	for _, snap := range snaps {
		for name, enter := range states {
			s.guest(t, spec).write(t, mark, "second")
			before := s.wantState(t, spec.ID, host.StateRunning)
			if err := enter(); err != nil {
				t.Fatalf("making it %s: %v", name, err)
			}
			back, err := s.host.Rollback(deadline(t), spec.ID, snap.ID)
			if err != nil {
				t.Fatalf("Rollback of a %s sandbox: %v", name, err)
			}
			if back.ID != spec.ID || back.State != host.StateRunning || back.MemoryMB != sb.MemoryMB {
				t.Errorf("Rollback of a %s sandbox gives %+v of %+v", name, back, sb)
			}
			// One that sleeps has no address to keep.
			if name != "hibernated" && back.GuestIP != before.GuestIP {
				t.Errorf("Rollback of a %s sandbox gives the address %q, it had %q", name, back.GuestIP, before.GuestIP)
			}
			s.wantState(t, spec.ID, host.StateRunning)
			g := s.guest(t, spec)
			g.wantFile(t, mark, "first")
			g.wantTokenNeeded(t)
			if env := g.environment(t); env["KEPT"] != "yes" {
				t.Errorf("environment %q", env)
			}
		}
	}
}

func rollbackThatFailsChangesNothing(t *testing.T, s *suite) {
	spec, other := s.spec(), s.spec()
	sb := s.create(t, spec)
	s.create(t, other)
	g := s.guest(t, spec)
	g.write(t, mark, "as it was")
	foreign := s.snapshot(t, other.ID, true)
	ctx := deadline(t)
	_, err := s.host.Rollback(ctx, spec.ID, api.NewSnapshotID())
	wantCode(t, "Rollback to a snapshot that is not there", err, api.CodeSnapshotNotFound)
	if _, err = s.host.Rollback(ctx, spec.ID, foreign.ID); err == nil {
		t.Error("Rollback to another sandbox's snapshot passes")
	}
	_, err = s.host.Rollback(ctx, api.NewID(), foreign.ID)
	wantCode(t, "Rollback of an unknown sandbox", err, api.CodeSandboxNotFound)
	if got := s.wantState(t, spec.ID, host.StateRunning); got.GuestIP != sb.GuestIP {
		t.Errorf("its address is now %q", got.GuestIP)
	}
	g.wantFile(t, mark, "as it was")
}

func snapshotRefusals(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx := deadline(t)
	for _, id := range []string{"", "snap-short", "../../etc/passwd", "SNAP-" + api.NewID(), api.NewID(), "snap-" + api.NewID() + "/.."} {
		_, err := s.host.Snapshot(ctx, spec.ID, host.SnapshotSpec{ID: id, Memory: true})
		wantCode(t, "Snapshot under the id "+id, err, api.CodeInvalidRequest)
	}
	for _, id := range []string{api.NewID(), "", ".."} {
		snap := s.snapshotSpec(t, true)
		_, err := s.host.Snapshot(ctx, id, snap)
		wantCode(t, "Snapshot of an unknown sandbox", err, api.CodeSandboxNotFound)
		s.wantNoSnapshot(t, snap.ID)
	}
	s.guest(t, spec).wantHealthy(t)
}

func unknownSnapshotsAreNotFound(t *testing.T, s *suite) {
	ctx := deadline(t)
	for _, id := range []string{api.NewSnapshotID(), "", "..", "a/b?c=d&id=e", "ä"} {
		_, err := s.host.GetSnapshot(ctx, id)
		wantCode(t, "GetSnapshot", err, api.CodeSnapshotNotFound)
		r, err := s.host.Export(ctx, id)
		if err == nil {
			r.Close()
		}
		wantCode(t, "Export", err, api.CodeSnapshotNotFound)
		if err := s.host.DeleteSnapshot(ctx, id); err != nil {
			t.Errorf("DeleteSnapshot: %v", err)
		}
		if id == "" {
			continue // of a Create that is no snapshot at all
		}
		from := s.from(id)
		_, err = s.host.Create(ctx, from)
		wantCode(t, "Create from an unknown snapshot", err, api.CodeSnapshotNotFound, api.CodeInvalidRequest)
		s.wantGone(t, from.ID)
	}
	for _, id := range []string{api.NewID(), "", "..", "ä"} {
		wantCode(t, "Hibernate", s.host.Hibernate(ctx, id), api.CodeSandboxNotFound)
		_, err := s.host.Wake(ctx, id)
		wantCode(t, "Wake", err, api.CodeSandboxNotFound)
	}
}
