//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// startModel runs testdata/model.py in a sandbox.
func startModel(t *testing.T, sb *client.Sandbox) {
	t.Helper()
	program, err := os.ReadFile("testdata/model.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Files.WriteFile(t.Context(), "/workspace/model.py", program); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line("exec python3 /workspace/model.py"), Background: true}); err != nil {
		t.Fatal(err)
	}
	sh(t, sb, "for i in $(seq 200); do curl -sf localhost:8000/sum && exit; sleep 0.1; done; exit 1")
}

func ask(t *testing.T, sb *client.Sandbox, path string) string {
	t.Helper()
	return sh(t, sb, "curl -sf localhost:8000"+path)
}

// TestSnapshotsTour runs the demonstration of docs/snapshots.md.
func TestSnapshotsTour(t *testing.T) {
	t.Parallel()
	runTour(t, "../../docs/snapshots.md")
}

// TestHibernateRounds puts a sandbox to sleep a hundred times, each time with
// more in its memory and on its disk than before, and forks it now and then.
func TestHibernateRounds(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{Persistent: true})
	startModel(t, sb)
	const state = "curl -sf localhost:8000/sum; cat /workspace/file-* | sha256sum; hostname; cat /etc/machine-id"
	for round := range 100 {
		before := sh(t, sb, fmt.Sprintf("curl -sf localhost:8000/add >/dev/null; head -c 20000 /dev/urandom > /workspace/file-%d; %s", round, state))
		if err := sb.Hibernate(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round%10 == 9 {
			checkFork(t, sb, before)
		}
		if after := sh(t, sb, state); after != before {
			t.Fatalf("round %d: after the wake\n%s\nbefore\n%s", round, after, before)
		}
	}
}

// checkFork forks a sandbox that sleeps and compares the child's state, whose
// first two lines are those of its parent and the others its own.
func checkFork(t *testing.T, sb *client.Sandbox, parent string) {
	t.Helper()
	child, err := sb.Fork(t.Context(), api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(sh(t, child, "curl -sf localhost:8000/sum; cat /workspace/file-* | sha256sum; hostname; cat /etc/machine-id"), "\n")
	want := strings.Split(parent, "\n")
	for i := range want {
		if same := got[i] == want[i]; same != (i < 2) {
			t.Errorf("line %d of the child is %q, of its parent %q", i, got[i], want[i])
		}
	}
	if err := child.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestChildrenDiffer starts fifty children of one parent: what must be random
// is, in the kernel, in new processes, and in one that was forked with its
// generators and renewed them when it was told.
func TestChildrenDiffer(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	parent := create(t, s, api.CreateSandbox{})
	startModel(t, parent)

	// Without the hook the copied generators go on alike: the comparison below
	// can fail.
	twins := randomValues(t, parent, 2)
	if twins[0]["random"] != twins[1]["random"] {
		t.Error("two children whose processes were told nothing have different generators")
	}

	sh(t, parent, `mkdir -p /etc/pandastack/on-restore.d 2>/dev/null || sudo mkdir -p /etc/pandastack/on-restore.d
printf '#!/bin/sh\nkill -USR1 $(cat /workspace/model.pid)\n' | sudo tee /etc/pandastack/on-restore.d/10-model >/dev/null
sudo chmod 755 /etc/pandastack/on-restore.d/10-model`)
	seen := map[string]string{}
	for i, values := range randomValues(t, parent, 50) {
		if values["renewals"] != "1" {
			t.Errorf("child %d was told %s times that it is a child", i, values["renewals"])
		}
		delete(values, "renewals")
		for name, v := range values {
			if v == "" {
				t.Errorf("child %d has no %s", i, name)
			}
			if other, ok := seen[v]; ok {
				t.Errorf("child %d has the %s of %s", i, name, other)
			}
			seen[v] = fmt.Sprintf("child %d's %s", i, name)
		}
	}
}

// randomValues forks a sandbox and gives what each child has of what no two
// machines may share.
func randomValues(t *testing.T, parent *client.Sandbox, n int) []map[string]string {
	t.Helper()
	tree, err := parent.ForkTree(t.Context(), n, api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, child := range tree.Children {
			if err := child.Delete(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}()
	out := make([]map[string]string, len(tree.Children))
	var g sync.WaitGroup
	for i, child := range tree.Children {
		g.Go(func() {
			res, err := child.Shell(t.Context(), `curl -sf localhost:8000/random
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' '; cat /proc/sys/kernel/random/uuid
python3 -c 'import uuid; print(uuid.uuid4())'; python3 -c 'import random; print(random.getrandbits(128))'
hostname; cat /etc/machine-id; jq -r .generation /run/pandastack/identity`)
			if err != nil || res.ExitCode != 0 {
				t.Errorf("child %d: %v %+v", i, err, res)
				return
			}
			lines := strings.Split(strings.TrimSpace(res.Stdout), "\n")
			var live map[string]any
			d := json.NewDecoder(strings.NewReader(lines[0]))
			d.UseNumber()
			if err := d.Decode(&live); err != nil {
				t.Errorf("child %d: %v: %s", i, err, lines[0])
				return
			}
			out[i] = map[string]string{}
			for k, v := range live {
				out[i][k] = fmt.Sprint(v)
			}
			for j, name := range []string{"kernel bytes", "kernel uuid", "new uuid4", "new random", "hostname", "machine id", "generation"} {
				out[i][name] = lines[1+j]
			}
		})
	}
	g.Wait()
	return out
}

// TestKillWhileHibernating kills the server at arbitrary moments of a
// hibernation: afterwards the sandbox runs or sleeps, and has all it had.
func TestKillWhileHibernating(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := own(t, dir)
	sb := create(t, s, api.CreateSandbox{Persistent: true})
	startModel(t, sb)
	for round := range 6 {
		before := ask(t, sb, "/add")
		asked := make(chan error, 1)
		go func() { asked <- sb.Hibernate(t.Context()) }()
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		if err := s.stop(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-asked // it may have been in time
		s = own(t, dir)
		c := s.client()
		again, err := c.Sandboxes.Get(t.Context(), sb.ID)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if again.Status != api.StatusRunning && again.Status != api.StatusHibernated {
			t.Fatalf("round %d: the sandbox is %s: %v", round, again.Status, again.Error)
		}
		if after := ask(t, again, "/sum"); after != before {
			t.Fatalf("round %d: it has %q, and had %q", round, after, before)
		}
		sb = again
	}
	if err := sb.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.stop(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// TestSnapshotAfterRestart starts sandboxes from a snapshot when its source is
// gone, after a kill of the server, and on another server from its file.
func TestSnapshotAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := own(t, dir)
	source := create(t, first, api.CreateSandbox{Metadata: map[string]string{"from": "source"}})
	startModel(t, source)
	want := ask(t, source, "/add")
	snap, err := source.Snapshot(t.Context(), api.CreateSnapshot{Name: "loaded"})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := create(t, first, api.CreateSandbox{FromSnapshot: "loaded"})
	if got := ask(t, again, "/sum"); got != want {
		t.Errorf("from the snapshot of a sandbox that is gone: %q, want %q", got, want)
	}
	if err := again.Delete(t.Context()); err != nil { // its server is about to end
		t.Error(err)
	}
	if err := first.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := own(t, dir)
	if got := ask(t, create(t, second, api.CreateSandbox{FromSnapshot: snap.ID}), "/sum"); got != want {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	checkExport(t, second, want)
}

// checkExport carries a snapshot to another server as a file.
func checkExport(t *testing.T, from *server, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "loaded.pandasnap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := from.client()
	defer c.Close()
	if err := c.Snapshots.Export(t.Context(), "loaded", file); err != nil {
		t.Fatal(err)
	}
	other := own(t, t.TempDir())
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	oc := other.client()
	defer oc.Close()
	if _, err := oc.Snapshots.Import(t.Context(), "arrived", file); err != nil {
		t.Fatal(err)
	}
	sb := create(t, other, api.CreateSandbox{FromSnapshot: "arrived"})
	if got := ask(t, sb, "/sum"); got != want {
		t.Errorf("on another server: %q, want %q", got, want)
	}
	if err := sb.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTimeline goes back and forth between checkpoints of one sandbox.
func TestTimeline(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	startModel(t, sb)
	address, name := sb.GuestIP, sh(t, sb, "hostname")
	states := map[string]string{}
	for _, step := range []string{"one", "two", "three"} {
		states[step] = ask(t, sb, "/add")
		sh(t, sb, "echo "+step+" > /workspace/step")
		if _, err := sb.Checkpoint(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []string{"one", "three", "two"} {
		if err := sb.Restore(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, sb, "/sum"); got != states[step] {
			t.Errorf("memory at %s is %q, was %q", step, got, states[step])
		}
		if got := sh(t, sb, "cat /workspace/step; hostname"); got != step+"\n"+name {
			t.Errorf("files at %s: %q", step, got)
		}
		if sb.GuestIP != address {
			t.Errorf("its address was %s and is %s", address, sb.GuestIP)
		}
	}
	branch, err := sb.Fork(t.Context(), api.Fork{Checkpoint: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, branch, "/sum"); got != states["one"] {
		t.Errorf("a branch from one has %q, want %q", got, states["one"])
	}
	if got := ask(t, sb, "/sum"); got != states["two"] {
		t.Errorf("the branch changed its source to %q", got)
	}
	if err := branch.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestConnectionsAfterWake uses the same few ports before and after a sleep: what
// is left of the old connections may not swallow the new ones.
func TestConnectionsAfterWake(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	startModel(t, sb)
	sh(t, sb, "echo 40000 40007 | sudo tee /proc/sys/net/ipv4/ip_local_port_range")
	const connect = "for i in $(seq 16); do curl -sf -m 5 127.0.0.1:8000/sum >/dev/null || exit 1; done"
	sh(t, sb, connect)
	for range 3 {
		if err := sb.Hibernate(t.Context()); err != nil {
			t.Fatal(err)
		}
		sh(t, sb, connect)
	}
}

// TestFilesOnly starts cold from the files of a sandbox.
func TestFilesOnly(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	source := create(t, s, api.CreateSandbox{})
	sh(t, source, "echo kept > /workspace/file; sudo rm /etc/issue; ln -s file /workspace/link; sudo install -m 4711 /bin/true /workspace/tool")
	no := false
	snap, err := source.Snapshot(t.Context(), api.CreateSnapshot{Memory: &no})
	if err != nil {
		t.Fatal(err)
	}
	sb := create(t, s, api.CreateSandbox{FromSnapshot: snap.ID})
	if sb.BootMode != api.BootCold {
		t.Errorf("it came up by %s", sb.BootMode)
	}
	if got := sh(t, sb, "cat /workspace/link; ls /etc/issue 2>&1 | tail -c 10; stat -c %a:%U /workspace/tool"); got != "kept\ndirectory\n4711:root" {
		t.Errorf("its files: %q", got)
	}
	c := s.client()
	defer c.Close()
	if err := c.Snapshots.Delete(t.Context(), snap.ID); err != nil {
		t.Error(err)
	}
}
