//go:build linux

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// readUntil reads output until it holds want.
func readUntil(t *testing.T, p *guest.Process, want string) string {
	t.Helper()
	var out strings.Builder
	for !strings.Contains(out.String(), want) {
		ev, err := p.Recv()
		if err != nil {
			t.Fatalf("after %q: %v", out.String(), err)
		}
		out.Write(ev.Stdout)
		out.Write(ev.Stderr)
		out.Write(ev.PTY)
	}
	return out.String()
}

func shell(line string) guest.Command {
	return guest.Command{Cmd: "/bin/sh", Args: []string{"-c", line}, User: "root"}
}

// TestReplay: a late client that asks for it gets what was written, in order and
// by stream, and then what follows; one that does not gets what follows only.
func TestReplay(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	cmd := shell("echo one; echo two >&2; sleep 0.2; echo three; cat")
	cmd.Stdin = true
	p, err := d.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	readUntil(t, p, "three\n")
	p.Close()
	plain, err := d.Attach(testContext(t), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	late, err := d.AttachReplay(testContext(t), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if late.Skipped() != 0 {
		t.Errorf("%d bytes skipped", late.Skipped())
	}
	if _, err := d.Feed(testContext(t), p.PID(), strings.NewReader("four\n"), true); err != nil {
		t.Fatal(err)
	}
	if r := drain(late); r.stdout != "one\nthree\nfour\n" || r.stderr != "two\n" || r.exit == nil || r.exit.Code != 0 {
		t.Errorf("with a replay: %+v", r)
	}
	if r := drain(plain); r.stdout != "four\n" || r.stderr != "" || r.exit == nil {
		t.Errorf("without: %+v", r)
	}
	// It has ended: its end and its output are still known.
	again, err := d.AttachReplay(testContext(t), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(again); r.stdout != "one\nthree\nfour\n" || r.exit == nil {
		t.Errorf("after the end: %+v", r)
	}
	all, err := d.Processes(testContext(t), true)
	if err != nil || len(all) != 1 || all[0].EndedAt == nil || all[0].ExitCode == nil || *all[0].ExitCode != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestReplayIsBounded: of much output the last is kept, and how much is not.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	const lines = 100_000
	cmd := shell(fmt.Sprintf("seq %d; sleep 1000", lines))
	p, err := d.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	total := len(readUntil(t, p, fmt.Sprintf("\n%d\n", lines)))
	p.Close()
	late, err := d.AttachReplay(testContext(t), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	out := readUntil(t, late, fmt.Sprintf("\n%d\n", lines))
	if len(out) < 200<<10 || len(out) > 256<<10 || int(late.Skipped())+len(out) != total {
		t.Errorf("%d bytes replayed, %d skipped, of %d", len(out), late.Skipped(), total)
	}
	if err := d.KillTree(testContext(t), p.PID()); err != nil {
		t.Fatal(err)
	}
}

// TestReplayWhileWriting attaches again and again to a program that writes, and
// misses and repeats nothing.
func TestReplayWhileWriting(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	p, err := d.Start(testContext(t), shell("i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done"))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintln(&want, i)
	}
	for range 20 {
		late, err := d.AttachReplay(testContext(t), p.PID())
		if err != nil {
			t.Fatal(err)
		}
		if r := drain(late); r.stdout != want.String() || r.exit == nil {
			t.Fatalf("%d bytes of %d, %v", len(r.stdout), want.Len(), r.err)
		}
	}
}

// TestTails starts more processes than their tails have room for together: the
// daemon stays small, and those that run keep something.
func TestTails(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	var pids []int
	for i := range 80 {
		cmd := shell("head -c 400000 /dev/zero; echo; echo last")
		if i%2 == 0 {
			cmd = shell("head -c 400000 /dev/zero; echo; echo last; sleep 1000")
		}
		p, err := d.Start(testContext(t), cmd)
		if err != nil {
			t.Fatal(err)
		}
		readUntil(t, p, "last\n")
		p.Close()
		if i%2 == 0 {
			pids = append(pids, p.PID())
		}
	}
	for _, pid := range pids {
		late, err := d.AttachReplay(testContext(t), pid)
		if err != nil {
			t.Fatal(err)
		}
		if out := readUntil(t, late, "last\n"); len(out) < 4<<10 {
			t.Errorf("%d bytes are kept of process %d", len(out), pid)
		}
		late.Close()
		if err := d.KillTree(testContext(t), pid); err != nil {
			t.Error(err)
		}
	}
	if kb := d.rssKB(t); kb > 48<<10 {
		t.Errorf("the daemon uses %d KiB", kb)
	}
}

// TestListProcesses describes what runs.
func TestListProcesses(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := t.TempDir()
	long := strings.Repeat("x", 5000)
	cmd := guest.Command{Cmd: "sleep", Args: []string{"1000"}, Cwd: dir, User: "root", Tag: "job"}
	p, err := d.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	q, err := d.Start(testContext(t), guest.Command{Cmd: "/bin/sh", Args: []string{"-c", "sleep 1000", long, "more"}, User: "root", PTY: &guest.Size{Cols: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
	list, err := d.Processes(testContext(t), false)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	a, b := list[0], list[1]
	if a.PID != p.PID() || a.Cmd != "sleep" || len(a.Args) != 1 || a.Cwd != dir || a.User != "root" || a.Tag != "job" || a.Terminal || a.ArgsCut || time.Since(a.StartedAt).Abs() > time.Minute {
		t.Errorf("%+v", a)
	}
	if !b.Terminal || !b.ArgsCut || len(b.Args) != 3 || len(b.Args[2]) > 2048 || b.EndedAt != nil {
		t.Errorf("%+v", b)
	}
	if pid, err := d.Find(testContext(t), "job"); err != nil || pid != p.PID() {
		t.Errorf("the job is %d, %v", pid, err)
	}
	_, err = d.Find(testContext(t), "no job")
	wantCode(t, err, api.CodeProcessNotFound)
	for _, pid := range []int{p.PID(), q.PID()} {
		if err := d.SignalTree(testContext(t), pid, syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "both have ended", func() bool {
		list, err := d.Processes(testContext(t), false)
		return err == nil && len(list) == 0
	})
	list, err = d.Processes(testContext(t), true)
	if err != nil || len(list) != 2 || list[0].Signal != "SIGINT" || *list[0].ExitCode != 130 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestFeed streams input, gives up when the process ends, and types at a terminal.
func TestFeed(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	cmd := shell("wc -c")
	cmd.Stdin = true
	p, err := d.Start(testContext(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.Feed(testContext(t), p.PID(), io.LimitReader(zeros{}, 20<<20), true); err != nil || n != 20<<20 {
		t.Fatalf("%d taken, %v", n, err)
	}
	if r := drain(p); strings.TrimSpace(r.stdout) != fmt.Sprint(20<<20) {
		t.Errorf("%+v", r)
	}
	if n, err := d.Feed(testContext(t), p.PID(), strings.NewReader("x"), false); err != nil || n != 0 {
		t.Errorf("one that has ended took %d, %v", n, err)
	}
	_, err = d.Feed(testContext(t), 1<<30, strings.NewReader("x"), false)
	wantCode(t, err, api.CodeProcessNotFound)

	// One that closes its input, and runs.
	cmd = shell("head -c 10 >/dev/null; exec 0<&-; echo closed; while [ ! -e /tmp/none ]; do sleep 0.05; done")
	cmd.Stdin = true
	if p, err = d.Start(testContext(t), cmd); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Feed(testContext(t), p.PID(), io.LimitReader(zeros{}, 20<<20), true); err != nil || n < 10 || n >= 20<<20 {
		t.Errorf("one that reads ten bytes took %d, %v", n, err)
	}
	if err := d.KillTree(testContext(t), p.PID()); err != nil {
		t.Error(err)
	}
	p.Close()

	// One that ends while its input is open.
	cmd = shell("read line; exit 3")
	cmd.Stdin = true
	if p, err = d.Start(testContext(t), cmd); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	fed := make(chan error, 1)
	go func() {
		n, err := d.Feed(testContext(t), p.PID(), r, false)
		if n != 6 {
			err = errors.Join(err, fmt.Errorf("%d bytes were taken", n))
		}
		fed <- err
	}()
	fmt.Fprintln(w, "go on")
	if r := drain(p); r.exit == nil || r.exit.Code != 3 {
		t.Errorf("%+v", r)
	}
	if err := <-fed; err != nil {
		t.Errorf("its end is an error: %v", err)
	}
	r.Close()

	cmd = shell(`echo "$TERM $LANG"; read line; echo "got $line"; stty size; exec cat`)
	cmd.PTY = &guest.Size{Cols: 100, Rows: 30}
	if p, err = d.Start(testContext(t), cmd); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	readUntil(t, p, "xterm-256color C.UTF-8")
	if _, err := d.Feed(testContext(t), p.PID(), strings.NewReader("keys\r"), true); err != nil {
		t.Fatal(err)
	}
	readUntil(t, p, "30 100")
	if _, err := d.Feed(testContext(t), p.PID(), strings.NewReader("\x04"), false); err != nil {
		t.Fatal(err)
	}
	if r := drain(p); r.exit == nil || r.exit.Code != 0 {
		t.Errorf("%+v", r)
	}
}

// TestFeedEnds feeds programs that end meanwhile, or have ended, over connections
// that are used again.
func TestFeedEnds(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	for i := range 20 {
		cmd := shell("head -c 10 >/dev/null")
		cmd.Stdin = true
		p, err := d.Start(testContext(t), cmd)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{32 << 20, 4, 4} {
			if n, err := d.Feed(testContext(t), p.PID(), io.LimitReader(zeros{}, size), false); err != nil || n > 1<<20 {
				t.Errorf("round %d, %d bytes: %d taken, %v", i, size, n, err)
			}
		}
		if r := drain(p); r.exit == nil || r.exit.Code != 0 {
			t.Errorf("%+v", r)
		}
		p.Close()
		if n, err := d.Feed(testContext(t), p.PID(), strings.NewReader("more"), true); err != nil || n != 0 {
			t.Errorf("round %d, after its end: %d taken, %v", i, n, err)
		}
		wantCode(t, d.CloseStdin(testContext(t), p.PID()), api.CodeProcessNotFound)
	}
}

// TestSignalTree sends another signal than SIGKILL to children too.
func TestSignalTree(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	p, err := d.Start(testContext(t), shell("trap 'echo parent' USR1; sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.05; done' & wait; wait"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	readUntil(t, p, "ready")
	if err := d.SignalTree(testContext(t), p.PID(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if r := drain(p); !strings.Contains(r.stdout, "parent") || !strings.Contains(r.stdout, "child") {
		t.Errorf("%+v", r)
	}
	_, err = d.AttachReplay(context.WithoutCancel(t.Context()), 1<<30)
	wantCode(t, err, api.CodeProcessNotFound)
}

func TestParseSignal(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]syscall.Signal{"SIGINT": 2, "int": 2, "sigusr1": 10, "9": 9, "64": 64, "WINCH": 28} {
		if got, ok := guest.ParseSignal(name); !ok || got != want {
			t.Errorf("%s is %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "0", "65", "-1", "SIG", "SIGNO", "9 "} {
		if got, ok := guest.ParseSignal(name); ok {
			t.Errorf("%q is %d", name, got)
		}
	}
}
