package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/image"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// remember starts a process in a sandbox that keeps a value in its memory alone;
// recall asks it.
func (w *world) remember(id, value string) {
	w.t.Helper()
	w.sh(id, `mkfifo /tmp/ask /tmp/answer; (v=`+value+`; exec 3<>/tmp/ask 4<>/tmp/answer; while read q <&3; do
		case $q in get) ;; *) v=$q;; esac; echo $v >&4; done) >/dev/null 2>&1 &`)
}

func (w *world) recall(id string) string {
	w.t.Helper()
	return w.sh(id, "echo get > /tmp/ask; read v < /tmp/answer; echo $v")
}

func (w *world) change(id, value string) {
	w.t.Helper()
	w.sh(id, "echo "+value+" > /tmp/ask; read v < /tmp/answer")
}

func (w *world) picture(id string, memory bool) host.Snapshot {
	w.t.Helper()
	s, err := w.Snapshot(w.t.Context(), id, host.SnapshotSpec{ID: api.NewSnapshotID(), Memory: memory})
	if err != nil {
		w.t.Fatalf("snapshot: %v", err)
	}
	w.t.Cleanup(func() {
		if err := w.cfg.Kept.Delete(context.Background(), s.ID); err != nil {
			w.t.Errorf("delete of a snapshot: %v", err)
		}
	})
	return s
}

func TestForkOfARunningSandbox(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	parent := w.create(func(s *host.Spec) { s.Env = map[string]string{"COLOUR": "blue", "SHAPE": "round"} })
	w.remember(parent.ID, "parent")
	specs := make([]host.Spec, 3)
	for i := range specs {
		specs[i] = specFor(api.NewID())
		specs[i].Env = map[string]string{"COLOUR": fmt.Sprint("red", i)}
	}
	specs[2].MemoryMB = 512
	children, err := w.Fork(t.Context(), parent.ID, specs)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, c := range children {
		if c.ID != specs[i].ID || c.BootMode != api.BootFork || c.BootMS <= 0 || c.Driver != parent.Driver || c.Template != parent.Template {
			t.Errorf("child %+v", c)
		}
		if got := w.recall(c.ID); got != "parent" {
			t.Errorf("child %d remembers %q", i, got)
		}
		w.change(c.ID, fmt.Sprint("child", i))
		if got := w.sh(c.ID, "echo $COLOUR $SHAPE; hostname"); got != fmt.Sprintf("red%d round\n%s", i, hostname(c.ID)) {
			t.Errorf("in child %d: %q", i, got)
		}
		random := w.sh(c.ID, "head -c 16 /dev/urandom | od -An -tx1")
		if seen[random] || seen[c.GuestIP] {
			t.Errorf("two children have the same randomness %q or address %s", random, c.GuestIP)
		}
		seen[random], seen[c.GuestIP] = true, true
	}
	if children[2].MemoryMB != 512 || children[1].MemoryMB != 256 {
		t.Errorf("sizes of children: %+v", children)
	}
	for i, c := range children {
		if got := w.recall(c.ID); got != fmt.Sprint("child", i) {
			t.Errorf("child %d remembers %q", i, got)
		}
	}
	if got := w.recall(parent.ID); got != "parent" {
		t.Errorf("the parent remembers %q", got)
	}
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

func TestForkOfAPausedSandboxLeavesItPaused(t *testing.T) {
	t.Parallel()
	w := start(t, newSetting(t))
	parent := w.create()
	w.remember(parent.ID, "still")
	if err := w.Pause(t.Context(), parent.ID); err != nil {
		t.Fatal(err)
	}
	children, err := w.Fork(t.Context(), parent.ID, []host.Spec{specFor(api.NewID())})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.recall(children[0].ID); got != "still" {
		t.Errorf("the child remembers %q", got)
	}
	wantState(t, w.Agent, parent.ID, host.StatePaused)
	if err := w.Resume(t.Context(), parent.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.recall(parent.ID); got != "still" {
		t.Errorf("the parent remembers %q", got)
	}
}

// TestHibernateWakeWhole puts sandboxes to sleep and wakes them, over and over and
// across a restart of the agent.
func TestHibernateWakeWhole(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	ctx := t.Context()
	sb := w.create(func(s *host.Spec) { s.Env = map[string]string{"COLOUR": "blue"} })
	w.remember(sb.ID, "whole")
	w.sh(sb.ID, "head -c 3000000 /dev/urandom > /home/user/data; sha256sum /home/user/data > /home/user/sum")
	check := func() {
		t.Helper()
		if got := w.recall(sb.ID); got != "whole" {
			t.Errorf("it remembers %q", got)
		}
		if got := w.sh(sb.ID, "echo $COLOUR; hostname; sha256sum -c /home/user/sum"); got != "blue\n"+hostname(sb.ID)+"\n/home/user/data: OK" {
			t.Errorf("in the sandbox: %q", got)
		}
	}
	for round := range 3 {
		if round == 1 {
			if err := w.Pause(ctx, sb.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Hibernate(ctx, sb.ID); err != nil {
			t.Fatal(err)
		}
		if left := s.cgroups(); len(left) != 0 {
			t.Errorf("a sleeping sandbox has %v", left)
		}
		if round == 2 {
			w.stop()
			w = start(t, s)
			wantState(t, w.Agent, sb.ID, host.StateHibernated)
		}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				got, err := w.Wake(ctx, sb.ID)
				if err != nil || got.BootMode != api.BootWake || got.State != host.StateRunning {
					t.Errorf("wake: %+v, %v", got, err)
				}
			})
		}
		wg.Wait()
		check()
	}
	wantNoSleep(t, w.Agent)
	if err := w.Hibernate(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

// TestGuestStandsStillWhileItIsPutToSleep: what it did between the snapshot and its
// end would be lost. The store fails at last, and the guest goes on.
func TestGuestStandsStillWhileItIsPutToSleep(t *testing.T) {
	t.Parallel()
	k := &brokenKeeper{keep: api.Errorf(api.CodeSnapshotStoreFull, "the store is full"), held: make(chan struct{})}
	w := start(t, newSetting(t), func(c *Config) { k.Keeper = c.Kept; c.Kept = k })
	sb := w.create()
	w.remember(sb.ID, "here")
	w.sh(sb.ID, "(while :; do :; done) >/dev/null 2>&1 &")
	used := func() time.Duration {
		m := w.lookup(sb.ID).machine
		before, err := m.Usage(t.Context())
		time.Sleep(time.Second)
		after, err2 := m.Usage(t.Context())
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return after.CPU - before.CPU
	}
	if busy := used(); busy < 100*time.Millisecond {
		t.Fatalf("the guest is not busy: %v in a second", busy)
	}
	slept := make(chan error, 1)
	go func() { slept <- w.Hibernate(context.WithoutCancel(t.Context()), sb.ID) }()
	<-k.held
	if still := used(); still > 50*time.Millisecond {
		t.Errorf("the guest used %v in a second after it was captured", still)
	}
	<-k.held
	wantCode(t, <-slept, api.CodeSnapshotStoreFull)
	wantState(t, w.Agent, sb.ID, host.StateRunning)
	if busy := used(); busy < 100*time.Millisecond {
		t.Errorf("the guest does not go on: %v in a second", busy)
	}
	if got := w.recall(sb.ID); got != "here" {
		t.Errorf("it remembers %q", got)
	}
}

func TestCreateFromSnapshot(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	ctx := t.Context()
	source := w.create(func(s *host.Spec) { s.Env = map[string]string{"COLOUR": "blue"} })
	w.remember(source.ID, "kept")
	w.sh(source.ID, "echo kept > /home/user/file; rm -f /etc/hostname")
	memory, disk := w.picture(source.ID, true), w.picture(source.ID, false)
	if !memory.Memory || disk.Memory || memory.PauseMS <= 0 || memory.SizeBytes == 0 || disk.SizeBytes == 0 || memory.DiskMB != 256 {
		t.Errorf("snapshots %+v and %+v", memory, disk)
	}
	if got := w.recall(source.ID); got != "kept" {
		t.Errorf("the source remembers %q", got)
	}
	if err := w.Delete(ctx, source.ID); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w = start(t, s)
	warm := w.create(func(s *host.Spec) { s.Snapshot, s.Template, s.MemoryMB = memory.ID, "", 512 })
	if warm.BootMode != api.BootRestore || warm.MemoryMB != 512 || warm.Template != testTemplate {
		t.Errorf("from memory: %+v", warm)
	}
	if got := w.recall(warm.ID) + " " + w.sh(warm.ID, "cat /home/user/file; echo $COLOUR"); got != "kept kept\nblue" {
		t.Errorf("from memory: %q", got)
	}
	cold := w.create(func(s *host.Spec) { s.Snapshot = disk.ID })
	if cold.BootMode != api.BootCold {
		t.Errorf("from disk: %+v", cold)
	}
	if got := w.sh(cold.ID, "cat /home/user/file; echo $COLOUR; hostname"); got != "kept\nblue\n"+hostname(cold.ID) {
		t.Errorf("from disk: %q", got)
	}
	spec := specFor(api.NewID())
	spec.Snapshot, spec.DiskMB = memory.ID, 512
	_, err := w.Create(ctx, spec)
	wantCode(t, err, api.CodeInvalidRequest)
	// A sandbox that was made from one can be forked and put to sleep as any other.
	if _, err := w.Fork(ctx, warm.ID, []host.Spec{specFor(api.NewID())}); err != nil {
		t.Errorf("fork: %v", err)
	}
	if err := w.Hibernate(ctx, warm.ID); err != nil {
		t.Errorf("hibernate: %v", err)
	}
	if _, err := w.Wake(ctx, warm.ID); err != nil {
		t.Errorf("wake: %v", err)
	}
	if got := w.recall(warm.ID); got != "kept" {
		t.Errorf("it remembers %q", got)
	}
}

func TestRollbackInPlace(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	ctx := t.Context()
	changes, err := w.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sb := w.create()
	w.remember(sb.ID, "first")
	w.sh(sb.ID, "echo first > /home/user/file")
	memory, disk := w.picture(sb.ID, true), w.picture(sb.ID, false)
	for round := range 3 {
		w.change(sb.ID, "second")
		w.sh(sb.ID, "echo second > /home/user/file")
		switch round {
		case 1:
			err = w.Pause(ctx, sb.ID)
		case 2:
			err = w.Hibernate(ctx, sb.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		back, err := w.Rollback(ctx, sb.ID, memory.ID)
		if err != nil || back.State != host.StateRunning || back.BootMode != api.BootRestore || round < 2 && back.GuestIP != sb.GuestIP {
			t.Fatalf("rollback: %+v, %v", back, err)
		}
		if got := w.recall(sb.ID) + " " + w.sh(sb.ID, "cat /home/user/file; hostname"); got != "first first\n"+hostname(sb.ID) {
			t.Errorf("round %d: %q", round, got)
		}
	}
	w.sh(sb.ID, "echo third > /home/user/file")
	back, err := w.Rollback(ctx, sb.ID, disk.ID)
	if err != nil || back.BootMode != api.BootCold {
		t.Fatalf("rollback to a disk: %+v, %v", back, err)
	}
	if got := w.sh(sb.ID, "cat /home/user/file; hostname"); got != "first\n"+hostname(sb.ID) {
		t.Errorf("after a rollback to a disk: %q", got)
	}
	w.stop()
	w = start(t, s)
	if got := w.sh(sb.ID, "cat /home/user/file"); got != "first" {
		t.Errorf("after a restart: %q", got)
	}
	select {
	case c, ok := <-changes:
		if ok {
			t.Errorf("a rollback was taken for %+v", c)
		}
	case <-time.After(time.Second):
	}
	w.deleteAll()
	if err := errors.Join(w.DeleteSnapshot(ctx, memory.ID), w.DeleteSnapshot(ctx, disk.ID)); err != nil {
		t.Error(err)
	}
	w.stop()
	wantNothingLeft(t, s)
}

// TestExportToAnotherHost moves a snapshot to an agent that has neither it nor its
// image.
func TestExportToAnotherHost(t *testing.T) {
	t.Parallel()
	from := start(t, newSetting(t))
	ctx := t.Context()
	sb := from.create()
	from.remember(sb.ID, "moved")
	snap := from.picture(sb.ID, true)
	path := filepath.Join(t.TempDir(), "snapshot")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stream, err := from.Export(ctx, snap.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(file, stream)
	if err := errors.Join(err, stream.Close()); err != nil {
		t.Fatalf("export: %v", err)
	}

	other := newSetting(t)
	var images *image.Store
	to := start(t, other, func(c *Config) {
		images = image.NewStore(filepath.Join(other.Dir, "images"), c.Log)
		c.Images, c.Templates = images, nil
	})
	read := func() io.Reader {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return file
	}
	id := api.NewSnapshotID()
	cut, err := to.Import(ctx, host.SnapshotSpec{ID: id}, io.LimitReader(read(), 1<<20))
	if err == nil {
		t.Errorf("a file that is cut short gave %+v", cut)
	}
	if list, err := images.List(); err != nil || len(list) != 0 {
		t.Errorf("images %+v, %v after a failed import", list, err)
	}
	for range 2 { // the second time with the image there
		id = api.NewSnapshotID()
		got, err := to.Import(ctx, host.SnapshotSpec{ID: id}, read())
		if err != nil || got.ID != id || got.SandboxID != "" || !got.Memory || got.Template != testTemplate {
			t.Fatalf("import: %+v, %v", got, err)
		}
		made := to.create(func(s *host.Spec) { s.Snapshot = id })
		if got := to.recall(made.ID); got != "moved" {
			t.Errorf("it remembers %q", got)
		}
		_, err = to.Rollback(ctx, made.ID, id)
		wantCode(t, err, api.CodeInvalidRequest)
	}
	_, err = to.Import(ctx, host.SnapshotSpec{ID: id}, read())
	wantCode(t, err, api.CodeSnapshotExists)
	_, err = to.Import(ctx, host.SnapshotSpec{ID: api.NewSnapshotID()}, strings.NewReader("no snapshot at all"))
	wantCode(t, err, api.CodeSnapshotCorrupt)

	stream, err = from.Export(ctx, snap.ID) // a reader that leaves
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// TestStartFromPackedSnapshots evicts what is local and starts from the store.
func TestStartFromPackedSnapshots(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s, func(c *Config) {
		blobs, err := blob.NewDir(filepath.Join(s.Dir, "blobs"))
		if err != nil {
			t.Fatal(err)
		}
		// A cache of one byte keeps nothing that is packed.
		c.Kept, err = snapshot.Open(t.Context(), snapshot.Config{
			Dir: filepath.Join(s.Dir, "packed"), Blobs: blobs, CacheBytes: 1, PackAfter: time.Millisecond, Log: c.Log,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	ctx := t.Context()
	sb := w.create()
	w.remember(sb.ID, "packed")
	w.sh(sb.ID, "head -c 20000000 /dev/urandom > /home/user/data; sha256sum /home/user/data > /home/user/sum")
	memory, disk := w.picture(sb.ID, true), w.picture(sb.ID, false)
	if err := w.Hibernate(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	w.awaitEvicted()
	if _, err := w.Wake(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	warm := w.create(func(s *host.Spec) { s.Snapshot = memory.ID })
	cold := w.create(func(s *host.Spec) { s.Snapshot = disk.ID })
	for _, id := range []string{sb.ID, warm.ID} {
		if got := w.recall(id); got != "packed" {
			t.Errorf("it remembers %q", got)
		}
	}
	for _, id := range []string{sb.ID, warm.ID, cold.ID} {
		if got := w.sh(id, "sha256sum -c /home/user/sum"); got != "/home/user/data: OK" {
			t.Errorf("in the sandbox: %q", got)
		}
	}
	if children, err := w.Fork(ctx, warm.ID, []host.Spec{specFor(api.NewID())}); err != nil || w.recall(children[0].ID) != "packed" {
		t.Errorf("fork: %+v, %v", children, err)
	}
}

// awaitEvicted returns when no snapshot is in its raw form.
func (w *world) awaitEvicted() {
	w.t.Helper()
	var list []snapshot.Record
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var err error
		if list, err = w.cfg.Kept.List(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		raw := 0
		for _, r := range list {
			if r.Raw || !r.Packed {
				raw++
			}
		}
		if raw == 0 {
			return
		}
	}
	w.t.Fatalf("not everything was packed and evicted: %+v", list)
}
