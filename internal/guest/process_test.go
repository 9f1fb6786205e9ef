//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

func TestExitCodesAndOutput(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	r := d.sh(t, "echo out; echo err >&2; exit 7")
	if r.stdout != "out\n" || r.stderr != "err\n" || r.exit == nil || r.exit.Code != 7 || r.exit.Signal != "" {
		t.Fatalf("%+v %+v", r, r.exit)
	}
	r = d.sh(t, "kill -SEGV $$")
	if r.exit == nil || r.exit.Code != 128+11 || r.exit.Signal != "SIGSEGV" {
		t.Fatalf("%+v %+v", r, r.exit)
	}
	if r = d.run(t, guest.Command{Cmd: "true"}); r.exit == nil || r.exit.Code != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestProgramCannotStart(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		cmd   guest.Command
		errno any
		text  string
	}{
		{"name", guest.Command{Cmd: "no-such-program"}, "ENOENT", `exec: "no-such-program": executable file not found in $PATH`},
		{"path", guest.Command{Cmd: "/no/such"}, "ENOENT", `exec: "/no/such": executable file not found in $PATH`},
		{"not executable", guest.Command{Cmd: plain}, "EACCES", "permission denied"},
		{"directory", guest.Command{Cmd: "/tmp"}, "EACCES", "permission denied"},
		{"cwd", guest.Command{Cmd: "true", Cwd: "/no/such"}, nil, "cwd '/no/such' does not exist"},
		{"user", guest.Command{Cmd: "true", User: "nobody-here"}, nil, "invalid username: 'nobody-here'"},
		{"empty", guest.Command{}, nil, "empty"},
		{"nul", guest.Command{Cmd: "true", Args: []string{"a\x00b"}}, nil, "NUL"},
		{"env", guest.Command{Cmd: "true", Env: map[string]string{"A=B": "c"}}, nil, "environment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.Start(testContext(t), c.cmd)
			wantCode(t, err, api.CodeProcessInvalid)
			ae := api.AsError(err)
			if ae.Details["errno"] != c.errno || !strings.Contains(ae.Message, c.text) {
				t.Fatalf("%v %v", ae, ae.Details)
			}
		})
	}
}

func TestEnvironmentUserAndDirectory(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	err := d.Init(testContext(t), guest.Init{
		ID: "abcdefghij0123456789", Template: "base", EnvVars: map[string]string{"A": "global", "B": "global"}, DefaultUser: "daemon",
	})
	if err != nil {
		t.Fatal(err)
	}
	r := d.run(t, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", "echo $A $B $IMAGE_VAR $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID $USER $GODEBUG; id -un; id -u"}, Env: map[string]string{"B": "own"}})
	if want := "global own of-image true abcdefghij0123456789 base daemon\ndaemon\n1\n"; r.stdout != want {
		t.Fatalf("%q, want %q; %q", r.stdout, want, r.stderr)
	}
	if r = d.run(t, guest.Command{Cmd: "pwd", User: "root"}); r.stdout != "/root\n" {
		t.Fatalf("%+v", r)
	}
	if r = d.run(t, guest.Command{Cmd: "pwd", User: "root", Cwd: "/usr/../tmp"}); r.stdout != "/tmp\n" {
		t.Fatalf("%+v", r)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	if r := d.run(t, guest.Command{Cmd: "cat"}); r.exit == nil || r.exit.Code != 0 || r.stdout != "" {
		t.Fatalf("without stdin: %+v", r)
	}
	p, err := d.Start(ctx, guest.Command{Cmd: "cat", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB: several messages
	sent := make(chan error, 1)
	go func() {
		err := d.SendInput(ctx, p.PID(), data)
		if err == nil {
			err = d.CloseStdin(ctx, p.PID())
		}
		sent <- err
	}()
	r := drain(p)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if r.stdout != string(data) || r.exit == nil {
		t.Fatalf("%d bytes back, exit %v, %v", len(r.stdout), r.exit, r.err)
	}
	wantCode(t, d.SendInput(ctx, p.PID(), []byte("x")), api.CodeProcessNotFound)
	wantCode(t, d.SendInput(ctx, 1<<30, []byte("x")), api.CodeProcessNotFound)

	p, err = d.Start(ctx, guest.Command{Cmd: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wantCode(t, d.SendInput(ctx, p.PID(), []byte("x")), api.CodeProcessInvalid)
	wantCode(t, d.SendPTY(ctx, p.PID(), []byte("x")), api.CodeProcessInvalid)
	wantCode(t, d.Resize(ctx, p.PID(), guest.Size{Cols: 1, Rows: 1}), api.CodeProcessInvalid)
	if err := d.CloseStdin(ctx, p.PID()); err != nil {
		t.Fatal(err)
	}
}

func TestInputToOneThatDoesNotRead(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	p, err := d.Start(testContext(t), guest.Command{Cmd: "sleep", Args: []string{"1000"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	wantCode(t, d.SendInput(ctx, p.PID(), make([]byte, 1<<20)), api.CodeTimeout)
	if err := d.Health(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestSignalsAndList(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	p, err := d.Start(ctx, guest.Command{Cmd: "sleep", Args: []string{"1000"}, Tag: "nap", Env: map[string]string{"X": "y"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	list, err := d.List(ctx)
	if err != nil || len(list) != 1 || list[0].PID != p.PID() || list[0].Tag != "nap" || list[0].Cmd != "sleep" || list[0].Env["X"] != "y" {
		t.Fatalf("%+v %v", list, err)
	}
	if err := d.Signal(ctx, p.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := drain(p); r.exit == nil || r.exit.Code != 143 || r.exit.Signal != "SIGTERM" {
		t.Fatalf("%+v %v", r.exit, r.err)
	}
	if list, err = d.List(ctx); err != nil || len(list) != 0 {
		t.Fatalf("%+v %v", list, err)
	}
	wantCode(t, d.Signal(ctx, p.PID(), syscall.SIGKILL), api.CodeProcessNotFound)
	wantCode(t, d.Signal(ctx, -5, syscall.SIGKILL), api.CodeProcessNotFound)
}

func TestKilledProcessDoesNotWaitForItsChildren(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	p, err := d.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", "echo one; sleep 1000 & echo $!; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	child := 0
	for child == 0 {
		ev, err := p.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(string(ev.Stdout)) {
			if f != "one" {
				child, _ = strconv.Atoi(f)
			}
		}
	}
	if err := d.Signal(ctx, p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := drain(p); r.exit == nil || r.exit.Signal != "SIGKILL" {
		t.Fatalf("%+v %v", r, r.err)
	}
	if !alive(child) {
		t.Fatal("a signal to the process reached its child")
	}
	_ = syscall.Kill(child, syscall.SIGKILL)
	eventually(t, "the orphan is reaped", func() bool { return syscall.Kill(child, 0) == syscall.ESRCH })
}

// treeScript leaves a child in the group, one in a session of its own, and an
// orphan that keeps the session.
const treeScript = `sleep 1001 & a=$!
setsid sleep 1002 & b=$!
sh -c 'sleep 1003 & echo $! > "$0"' "$1"
echo $a $b $(cat "$1")
wait`

func TestTimeoutKillsTheTree(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"timeout", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t)
			ctx := testContext(t)
			cmd := guest.Command{Cmd: "/bin/sh", User: "root", Args: []string{"-c", treeScript, "sh", filepath.Join(t.TempDir(), "pid")}}
			if how == "timeout" {
				cmd.Timeout = 2 * time.Second
			}
			p, err := d.Start(ctx, cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ev, err := p.Recv()
			if err != nil {
				t.Fatal(err)
			}
			pids := strings.Fields(string(ev.Stdout))
			if len(pids) != 3 {
				t.Fatalf("%q", ev.Stdout)
			}
			if how == "kill" {
				if err := d.KillTree(ctx, p.PID()); err != nil {
					t.Fatal(err)
				}
			}
			r := drain(p)
			if how == "timeout" {
				wantCode(t, r.err, api.CodeTimeout)
			} else if r.exit == nil || r.exit.Signal != "SIGKILL" {
				t.Fatalf("%+v %v", r.exit, r.err)
			}
			for _, s := range pids {
				pid, err := strconv.Atoi(s)
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "dead and reaped: "+s, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
			}
			if list, err := d.List(ctx); err != nil || len(list) != 0 {
				t.Fatalf("%v %v", list, err)
			}
		})
	}
}

func TestTimeoutHoldsAfterTheClientLeft(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	p, err := d.Start(testContext(t), guest.Command{Cmd: "sleep", Args: []string{"1000"}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if !alive(p.PID()) {
		t.Fatal("leaving killed it")
	}
	eventually(t, "killed at its timeout", func() bool { return !alive(p.PID()) })
}

func TestDeadlineOfTheCallerIsNotTheProcess(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	p, err := d.Start(ctx, guest.Command{Cmd: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wantCode(t, drain(p).err, api.CodeTimeout)
	time.Sleep(time.Second)
	if !alive(p.PID()) {
		t.Fatal("the process ended with the caller's context")
	}
}

func TestDetachAndAttach(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	p, err := d.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", "read x; echo got $x; exit 5"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	a, err := d.Attach(ctx, p.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := d.Attach(ctx, p.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := d.SendInput(ctx, p.PID(), []byte("it\n")); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*guest.Process{a, b} {
		if r := drain(q); r.stdout != "got it\n" || r.exit == nil || r.exit.Code != 5 {
			t.Fatalf("%+v %v", r, r.err)
		}
	}
	late, err := d.Attach(ctx, p.PID())
	if err != nil {
		t.Fatal(err)
	}
	if r := drain(late); r.stdout != "" || r.exit == nil || r.exit.Code != 5 {
		t.Fatalf("late: %+v", r)
	}
	_, err = d.Attach(ctx, 1<<29)
	wantCode(t, err, api.CodeProcessNotFound)
}

func TestManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	errs := make(chan error, 8)
	for w := range 8 {
		go func() {
			for i := range 40 {
				want := fmt.Sprintf("%d-%d", w, i)
				p, err := d.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", "printf " + want + "; exit " + strconv.Itoa(i)}})
				if err != nil {
					errs <- err
					return
				}
				if r := drain(p); r.stdout != want || r.exit == nil || r.exit.Code != i {
					errs <- fmt.Errorf("%q %+v %v, want %q", r.stdout, r.exit, r.err, want)
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "no zombie is left", func() bool {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.pid, d.pid))
		return len(strings.Fields(string(data))) == 0
	})
}

func TestSandboxDies(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	p, err := d.Start(ctx, guest.Command{Cmd: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	d.kill()
	wantCode(t, drain(p).err, api.CodeSandboxDied)
	wantCode(t, d.Health(ctx), api.CodeSandboxDied)
	_, err = d.Start(ctx, guest.Command{Cmd: "true"})
	wantCode(t, err, api.CodeSandboxDied)
	_, err = d.Stat(ctx, "/", "")
	wantCode(t, err, api.CodeSandboxDied)
	wantCode(t, d.WriteFile(ctx, "/tmp/x", "", strings.NewReader("x")), api.CodeSandboxDied)
	if alive(p.PID()) {
		t.Fatal("the process outlived its daemon")
	}
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Start(ctx, guest.Command{Cmd: "true"})
	wantCode(t, err, api.CodeCanceled)
	wantCode(t, d.Health(ctx), api.CodeCanceled)
}
