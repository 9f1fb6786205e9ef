//go:build linux

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// TestKill kills the server in the middle of its work: the next one finds the
// sandbox running, with its files and processes, and the time that it had left.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := own(t, dir)
	sb := create(t, first, api.CreateSandbox{Metadata: map[string]string{"test": "kill"}, Env: map[string]string{"GREETING": "hello"}})
	short := 3
	doomed := create(t, first, api.CreateSandbox{TTLSeconds: &short})
	sh(t, sb, "echo kept > ~/file")
	if _, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line("while :; do date +%s%N > ~/beat; sleep 0.05; done"), Background: true}); err != nil {
		t.Fatal(err)
	}
	before := sh(t, sb, "pgrep -fc 'while :' ; hostname; cat /etc/machine-id")

	if err := first.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the time to live of one runs out meanwhile
	second := own(t, dir)

	c := second.client()
	defer c.Close()
	again, err := c.Sandboxes.Get(t.Context(), sb.ID)
	if err != nil {
		t.Fatalf("the sandbox is gone: %v", err)
	}
	if again.Status != api.StatusRunning || again.Metadata["test"] != "kill" {
		t.Errorf("the record after the restart: %+v", again.Sandbox)
	}
	if got := sh(t, again, "pgrep -fc 'while :' ; hostname; cat /etc/machine-id"); got != before {
		t.Errorf("after the restart %q, before %q", got, before)
	}
	if got := sh(t, again, "cat ~/file; echo $GREETING"); got != "kept\nhello" {
		t.Errorf("file and environment after the restart: %q", got)
	}
	beat := sh(t, again, "cat ~/beat")
	for deadline := time.Now().Add(30 * time.Second); sh(t, again, "cat ~/beat") == beat; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the background process of before the restart has stopped")
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if _, err := c.Sandboxes.Get(t.Context(), doomed.ID); client.IsNotFound(err) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a sandbox whose time ran out during the restart is still there")
		}
	}
	if err := again.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := second.stop(syscall.SIGTERM); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestStop stops a server that has a sandbox: the sandbox stays for the next.
func TestStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := own(t, dir)
	sb := create(t, first, api.CreateSandbox{})
	sh(t, sb, "echo kept > /tmp/file")
	if err := first.stop(syscall.SIGTERM); err != nil {
		t.Fatalf("stop with a sandbox running: %v", err)
	}
	second := own(t, dir)
	c := second.client()
	defer c.Close()
	again, err := c.Sandboxes.Get(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat /tmp/file"); got != "kept" {
		t.Errorf("file = %q", got)
	}
	if err := again.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := second.stop(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// TestSecondServer refuses a data directory that is in use.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	out, err := program("server", "--data-dir", s.dataDir, "--listen", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "hint:") || !strings.Contains(string(out), "data directory") {
		t.Errorf("a second server on the data directory: %v, %s", err, out)
	}
}
