//go:build linux

package guest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// binary is the guest program, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "guest-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/pandastack/pandastack/cmd/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the guest: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// daemon is a guest program that runs as an ordinary process.
type daemon struct {
	*guest.Client
	addr string
	pid  int
	root string // of the system's files that /init renews
	kill func()
}

func startDaemon(t testing.TB, flags ...string) *daemon {
	t.Helper()
	return startDaemonBy(t, nil, flags...)
}

// startDaemonBy starts the daemon through another program.
func startDaemonBy(t testing.TB, through []string, flags ...string) *daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the daemon starts programs as other users, which needs root")
	}
	root := t.TempDir()
	args := append(through[:len(through):len(through)], binary, "-no-init", "-allow-local-init", "-root", root, "-listen", "127.0.0.1:0")
	args = append(args, flags...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "IMAGE_VAR=of-image", "GODEBUG=madvdontneed=1"}
	// A test run that is cut off leaves no daemon, which in turn leaves nothing.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the daemon said nothing: %v", err)
	}
	_, rest, _ := strings.Cut(line, "addr=")
	addr, _, _ := strings.Cut(rest, " ")
	drained := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, r); close(drained) }()
	d := &daemon{addr: addr, pid: cmd.Process.Pid, root: root}
	d.kill = sync.OnceFunc(func() {
		sig := os.Interrupt
		if through != nil {
			sig = os.Kill
		}
		_ = cmd.Process.Signal(sig)
		<-drained
		_ = cmd.Wait()
	})
	d.Client = d.client(t, "")
	t.Cleanup(d.kill)
	return d
}

func (d *daemon) client(t testing.TB, token string) *guest.Client {
	c := guest.NewClient(func(ctx context.Context, port int) (net.Conn, error) {
		if port != api.InternalPort {
			t.Errorf("dialled port %d", port)
		}
		var nd net.Dialer
		return nd.DialContext(ctx, "tcp", d.addr)
	}, token)
	t.Cleanup(c.Close)
	return c
}

// rssKB is the resident memory of the daemon.
func (d *daemon) rssKB(t *testing.T) int {
	t.Helper()
	return d.statusKB(t, "VmRSS:")
}

// statusKB is a figure of what the kernel says of the daemon.
func (d *daemon) statusKB(t *testing.T, what string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, what); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no " + what)
	return 0
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// result is a process that has ended.
type result struct {
	stdout, stderr, pty string
	exit                *guest.Exit
	err                 error // of Recv, other than io.EOF
}

func drain(p *guest.Process) result {
	var r result
	var out, errs, term strings.Builder
	for {
		ev, err := p.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			r.err = err
			break
		}
		out.Write(ev.Stdout)
		errs.Write(ev.Stderr)
		term.Write(ev.PTY)
		if ev.Exit != nil {
			r.exit = ev.Exit
		}
	}
	r.stdout, r.stderr, r.pty = out.String(), errs.String(), term.String()
	return r
}

// sh runs a line of shell as root.
func (d *daemon) sh(t *testing.T, line string) result {
	t.Helper()
	return d.run(t, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", line}, User: "root"})
}

func (d *daemon) run(t *testing.T, cmd guest.Command) result {
	t.Helper()
	p, err := d.Start(testContext(t), cmd)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer p.Close()
	return drain(p)
}

func wantCode(t *testing.T, err error, code api.Code) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if got := api.CodeOf(err); got != code {
		t.Fatalf("code %s, want %s: %v", got, code, err)
	}
}

// eventually waits for a condition, for as long as a loaded machine may take.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}
