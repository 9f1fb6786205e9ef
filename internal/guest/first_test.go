//go:build linux

package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pandastack/pandastack/internal/guest"
)

// startFirst runs the daemon as first process of a namespace of processes, with
// the network of this machine.
func startFirst(t *testing.T) *daemon {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("SKIPPED: unshare (util-linux) is not installed")
	}
	return startDaemonBy(t, []string{unshare, "--pid", "--fork", "--mount-proc", "--uts", "--kill-child"}, "-no-init=false")
}

func TestFirstProcess(t *testing.T) {
	t.Parallel()
	d := startFirst(t)
	ctx := testContext(t)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.pid, d.pid))
	if err != nil {
		t.Fatal(err)
	}
	var first int
	if _, err := fmt.Sscan(string(children), &first); err != nil {
		t.Fatal(err)
	}
	if r := d.sh(t, "sed 's/.*) . //; s/ .*//' /proc/$$/stat"); r.stdout != "1\n" {
		t.Fatalf("a program's parent is %q: %+v", r.stdout, r)
	}
	if r := d.sh(t, "cat /proc/1/oom_score_adj"); r.stdout != "100\n" {
		t.Fatalf("%+v", r)
	}
	// Orphans are reaped while statuses of programs still arrive.
	for i := range 20 {
		if r := d.sh(t, fmt.Sprintf("(sleep 0.01 &) ; (sleep 0.01; exit 9) & exit %d", i)); r.exit == nil || r.exit.Code != i {
			t.Fatalf("%+v %v", r.exit, r.err)
		}
	}
	eventually(t, "no process is a zombie", func() bool {
		return d.sh(t, "grep -l '^State:.Z' /proc/[0-9]*/status").stdout == ""
	})
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGQUIT} {
		if err := syscall.Kill(first, sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Health(ctx); err != nil {
		t.Fatalf("a signal ended it: %v", err)
	}
	p, err := d.Start(ctx, guest.Command{Cmd: "setsid", Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	drain(p)
	eventually(t, "it ended, and all with it", func() bool {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.pid, d.pid))
		return strings.TrimSpace(string(data)) == ""
	})
}

// BenchmarkStart is one program from start to its end event, over loopback.
func BenchmarkStart(b *testing.B) {
	d := startDaemon(b)
	for b.Loop() {
		p, err := d.Start(b.Context(), guest.Command{Cmd: "/bin/true"})
		if err != nil {
			b.Fatal(err)
		}
		if r := drain(p); r.exit == nil {
			b.Fatal(r.err)
		}
	}
}

// BenchmarkFork is the same program without the daemon, for comparison.
func BenchmarkFork(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHealth is one empty round trip.
func BenchmarkHealth(b *testing.B) {
	d := startDaemon(b)
	for b.Loop() {
		if err := d.Health(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
