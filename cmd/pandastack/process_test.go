//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/creack/pty"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// TestProcessesTour runs the commands of docs/processes.md.
func TestProcessesTour(t *testing.T) {
	t.Parallel()
	runTour(t, "../../docs/processes.md")
}

// background starts a line with a tag and gives a handle on it.
func background(t *testing.T, sb *client.Sandbox, tag, line string) *client.Proc {
	t.Helper()
	res, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line(line), Tag: tag, Background: true, KeepStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	return sb.Proc(res.PID)
}

// follow collects what a process writes until stop says so, or it ends.
func followUntil(t *testing.T, p *client.Proc, replay bool, stop func(out string) bool) (out string, res *api.ExecResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ev, err := range p.Follow(ctx, replay) {
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		out += string(ev.Data)
		if ev.Type == "exit" {
			return out, ev.Result
		}
		if stop(out) {
			return out, nil
		}
	}
	t.Fatalf("the stream ended after %q", out)
	return
}

func holds(want string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, want) }
}

func never(string) bool { return false }

// TestProcesses lists, follows, feeds, signals and kills.
func TestProcesses(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	ctx := t.Context()
	p := background(t, sb, "loop", "echo out; echo err >&2; trap 'echo caught' INT; n=0; while :; do sleep 0.1; done")
	list, err := sb.Processes(ctx, false)
	if err != nil || len(list) != 1 || list[0].Tag != "loop" || list[0].User != "user" || list[0].Cwd != "/home/user" || list[0].Cmd != "/bin/sh" ||
		len(list[0].Args) != 2 || list[0].Terminal || time.Since(list[0].StartedAt).Abs() > time.Minute {
		t.Fatalf("%+v, %v", list, err)
	}
	if out, _ := followUntil(t, p, true, func(s string) bool { return holds("out\n")(s) && holds("err\n")(s) }); len(out) != 8 {
		t.Errorf("%q", out)
	}
	tagged := sb.Tagged("loop")
	if err := tagged.Signal(ctx, syscall.SIGINT, false); err != nil {
		t.Fatal(err)
	}
	followUntil(t, tagged, true, holds("caught\n"))
	if err := tagged.Signal(ctx, syscall.SIGUSR1, false); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(ctx); err != nil || res.ExitCode != 128+10 || res.Signal != "SIGUSR1" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := p.Kill(ctx); api.CodeOf(err) != api.CodeProcessNotFound {
		t.Errorf("kill of one that has ended: %v", err)
	}
	if err := sb.Proc(999999).Signal(ctx, syscall.SIGTERM, true); api.CodeOf(err) != api.CodeProcessNotFound {
		t.Errorf("signal of none: %v", err)
	}
	if err := sb.Tagged("nobody").Kill(ctx); api.CodeOf(err) != api.CodeProcessNotFound {
		t.Errorf("kill of none: %v", err)
	}

	tree := background(t, sb, "", "sleep 4711 & setsid sleep 4711 & sleep 4711")
	sh(t, sb, "for i in $(seq 100); do [ $(pgrep -fc 'sleep 471[1]') -ge 3 ] && exit; sleep 0.1; done; exit 1")
	if err := tree.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	sh(t, sb, "for i in $(seq 100); do pgrep -f '^sleep 471[1]' || exit 0; sleep 0.1; done; exit 1")

	all, err := sb.Processes(ctx, true)
	if err != nil || !slices.ContainsFunc(all, func(q api.Process) bool {
		return q.Signal == "SIGKILL" && q.ExitCode != nil && *q.ExitCode == 137 && q.EndedAt != nil
	}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestAttachSocket follows a process that runs over exec/ws, signals it there, and
// leaves without a word: it goes on.
func TestAttachSocket(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := background(t, sb, "", "trap 'echo hup' HUP; echo before; while :; do sleep 0.1; done")
	followUntil(t, p, true, holds("before"))
	for range 2 {
		conn, _, err := websocket.Dial(ctx, s.addr+"/v1/sandboxes/"+sb.ID+"/exec/ws", &websocket.DialOptions{
			HTTPHeader: map[string][]string{"Authorization": {"Bearer " + s.key}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		for _, m := range []string{`{"type":"attach","pid":` + p.Name + `}`, `{"type":"signal","signal":1}`} {
			if err := conn.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		for out := ""; !strings.Contains(out, "before\n") || !strings.Contains(out, "hup\n"); {
			_, data, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("after %q: %v", out, err)
			}
			var ev api.ExecEvent
			if err := json.Unmarshal(data, &ev); err != nil || ev.Type == "error" {
				t.Fatalf("%s, %v", data, err)
			}
			out += string(ev.Data)
		}
		conn.CloseNow()
	}
	if err := p.Kill(ctx); err != nil {
		t.Errorf("it did not go on: %v", err)
	}
}

// TestProcessInput feeds a program that was started with its input open.
func TestProcessInput(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	ctx := t.Context()
	for _, size := range []int64{0, 1, 30 << 20} {
		p := background(t, sb, "", "wc -c")
		if err := p.Feed(ctx, io.LimitReader(zero{}, size), false); err != nil {
			t.Fatal(err)
		}
		if err := p.CloseStdin(ctx); err != nil {
			t.Fatal(err)
		}
		if out, res := followUntil(t, p, true, never); strings.TrimSpace(out) != strconv.FormatInt(size, 10) || res.ExitCode != 0 {
			t.Errorf("%q of %d, %+v", out, size, res)
		}
	}
	// It ends while more is on its way, as in a shell's pipe; the answer says
	// how much it was given.
	for range 10 {
		p := background(t, sb, "", "head -c 10")
		if err := p.Feed(ctx, io.LimitReader(zero{}, 64<<20), true); err != nil {
			t.Errorf("a program that ended: %v", err)
		}
		if _, res := followUntil(t, p, true, never); res.ExitCode != 0 {
			t.Errorf("%+v", res)
		}
		if err := p.Feed(ctx, strings.NewReader("more"), true); err != nil {
			t.Errorf("one that has ended: %v", err)
		}
		if err := p.CloseStdin(ctx); err != nil {
			t.Errorf("end of file for it: %v", err)
		}
	}
	if err := sb.Proc(999999).Feed(ctx, strings.NewReader("more"), true); api.CodeOf(err) != api.CodeProcessNotFound {
		t.Errorf("one that never ran: %v", err)
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestReplayInCopies: what a process wrote is there for who attaches in a fork, in
// a sandbox of a snapshot and after a sleep, and the process goes on in each.
func TestReplayInCopies(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	count := "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done"
	p := background(t, sb, "count", count)
	followUntil(t, p, true, holds("line 5\n"))
	check := func(what string, sb *client.Sandbox) {
		t.Helper()
		// More comes than was there at any copy.
		out, _ := followUntil(t, sb.Tagged("count"), true, func(out string) bool { return strings.Count(out, "\n") > 60 })
		for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
			if line != fmt.Sprintf("line %d", i) {
				t.Fatalf("%s: line %d is %q", what, i, line)
			}
		}
	}
	// One follows it meanwhile, whose connection is not in the copies.
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		for range p.Follow(ctx, false) {
		}
	})
	defer following.Wait()
	defer cancel()
	child, err := sb.Fork(t.Context(), api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Delete(context.Background()) })
	check("the fork", child)
	cancel()
	check("the parent", sb)
	if err := sb.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after a sleep", sb)
}

// TestProcessesOutliveServer kills the server under a process and a terminal.
func TestProcessesOutliveServer(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	s := own(t, dir)
	sb := create(t, s, api.CreateSandbox{Persistent: true})
	background(t, sb, "job", "echo before; sleep 2; echo after; sleep 1000")
	term, err := sb.Terminal(t.Context(), client.TerminalOptions{Tag: "term"})
	if err != nil {
		t.Fatal(err)
	}
	say(t, term, "echo a$((40+2))b\r", "a42b")
	id := sb.ID
	if err := s.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, term); err == nil {
		t.Error("the terminal ended in order")
	}
	s = own(t, dir)
	c := s.client()
	defer c.Close()
	again := c.Sandboxes.Handle(id)
	defer again.Delete(context.Background())
	out, _ := followUntil(t, again.Tagged("job"), true, holds("after\n"))
	if out != "before\nafter\n" {
		t.Errorf("%q", out)
	}
	if term, err = again.Terminal(t.Context(), client.TerminalOptions{Tag: "term"}); err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	await(t, term, "a42b")
	fifty(t, s, again)
	if !testing.Short() {
		giga(t, s, again)
	}
}

// fifty opens many terminals at once, watches the server's memory, and types.
func fifty(t *testing.T, s *server, sb *client.Sandbox) {
	const n = 50
	before := rss(t, s.cmd.Process.Pid)
	var terms []*client.Terminal
	for i := range n {
		term, err := sb.Terminal(t.Context(), client.TerminalOptions{Line: "cat", Tag: fmt.Sprintf("cat-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		terms = append(terms, term)
		say(t, term, "x\r", "x\r\nx\r\n")
	}
	grown := rss(t, s.cmd.Process.Pid) - before
	var took []time.Duration
	buf := make([]byte, 4096)
	for range 200 {
		start := time.Now()
		if _, err := terms[0].Write([]byte("k")); err != nil {
			t.Fatal(err)
		}
		if _, err := terms[0].Read(buf); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	t.Logf("%d terminals take %d KiB; a key's echo p50 %v, p90 %v", n, grown>>10, took[100], took[180])
	if grown > n<<20 {
		t.Errorf("%d terminals take %d MiB", n, grown>>20)
	}
	for _, term := range terms {
		term.Close()
	}
	list, err := sb.Processes(t.Context(), false)
	if err != nil || len(list) < n {
		t.Errorf("%d processes are left, %v", len(list), err)
	}
	for _, p := range list {
		if strings.HasPrefix(p.Tag, "cat-") {
			if err := sb.Proc(p.PID).Kill(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// giga streams a gigabyte through the server to a client that stops reading for a
// while, and watches the server's memory.
func giga(t *testing.T, s *server, sb *client.Sandbox) {
	const size = 1 << 30
	before := rss(t, s.cmd.Process.Pid)
	var most atomic.Int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				most.Store(max(most.Load(), rss(t, s.cmd.Process.Pid)))
			}
		}
	})
	cmd := sb.ShellCommand(t.Context(), fmt.Sprintf("head -c %d /dev/zero", size))
	var got int64
	slept := false
	cmd.Stdout = writer(func(p []byte) (int, error) {
		got += int64(len(p))
		if got > size/4 && !slept {
			slept = true
			time.Sleep(3 * time.Second)
		}
		return len(p), nil
	})
	start := time.Now()
	err := cmd.Run()
	close(done)
	watching.Wait()
	t.Logf("1 GiB in %.1f s, 3 of them asleep; the server: %d MiB before, at most %d MiB", time.Since(start).Seconds(), before>>20, most.Load()>>20)
	if err != nil || got != size {
		t.Errorf("%d bytes, %v", got, err)
	}
	if most.Load() > before+48<<20 {
		t.Error("the server grew")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// rss is the resident memory of a process in bytes.
func rss(t *testing.T, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// await reads until want is there, and gives all that was read.
func await(t *testing.T, r io.Reader, want string) string {
	t.Helper()
	var out strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(out.String(), want) {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		if err != nil && !strings.Contains(out.String(), want) {
			t.Fatalf("no %q in %q: %v", want, out.String(), err)
		}
	}
	return out.String()
}

func say(t *testing.T, term io.ReadWriter, keys, want string) string {
	t.Helper()
	if _, err := io.WriteString(term, keys); err != nil {
		t.Fatal(err)
	}
	return await(t, term, want)
}

// TestTerminal uses a terminal, leaves it, comes back, and ends it.
func TestTerminal(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	ctx := t.Context()
	term, err := sb.Terminal(ctx, client.TerminalOptions{Rows: 30, Cols: 100, Tag: "shell"})
	if err != nil {
		t.Fatal(err)
	}
	say(t, term, "stty size; echo $TERM-$LANG-$0-$USER\r", "xterm-256color-C.UTF-8-/bin/bash-user")
	if err := term.Resize(50, 132); err != nil {
		t.Fatal(err)
	}
	say(t, term, "for i in $(seq 50); do [ \"$(stty size)\" = '50 132' ] && echo re''sized && break; sleep 0.1; done\r", "resized")
	say(t, term, "echo $((6*7))marker; sleep 1; echo l''ater\r", "42marker")
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	again, err := sb.Terminal(ctx, client.TerminalOptions{PID: term.PID, Rows: 20, Cols: 60})
	if err != nil {
		t.Fatal(err)
	}
	if out := await(t, again, "later"); strings.Count(out, "resized") < 1 || strings.Count(out, "42marker") != 1 {
		t.Errorf("the scrollback is %q", out)
	}
	say(t, again, "stty size\r", "20 60")
	// Two at once see the same.
	second, err := sb.Terminal(ctx, client.TerminalOptions{Tag: "shell"})
	if err != nil || second.PID != term.PID {
		t.Fatalf("%+v, %v", second, err)
	}
	say(t, again, "echo bo''th\r", "both")
	await(t, second, "both")
	second.Close()
	child, err := sb.Fork(ctx, api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Delete(context.Background())
	forked, err := child.Terminal(ctx, client.TerminalOptions{Tag: "shell"})
	if err != nil {
		t.Fatal(err)
	}
	await(t, forked, "both")
	say(t, forked, "echo fo''rked\r", "forked")
	forked.Close()
	if _, err := io.WriteString(again, "exit 7\r"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, again); err != nil || again.Result() == nil || again.Result().ExitCode != 7 {
		t.Errorf("%+v, %v", again.Result(), err)
	}
	again.Close()
	for name, o := range map[string]client.TerminalOptions{"pid": {PID: 999999}, "user": {User: "nobody-here"}, "dir": {Dir: "/no/such"}} {
		if _, err := sb.Terminal(ctx, o); api.CodeOf(err) != api.CodeProcessNotFound && api.CodeOf(err) != api.CodeProcessInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := background(t, sb, "", "sleep 1000")
	pid, _ := strconv.Atoi(p.Name)
	if _, err := sb.Terminal(ctx, client.TerminalOptions{PID: pid}); api.CodeOf(err) != api.CodeProcessInvalid {
		t.Errorf("a process without a terminal: %v", err)
	}
}

// TestTerminalOfPage does what a terminal of a web page does: the key comes as a
// subprotocol, what is typed as text, what is pasted in binary as bytes.
func TestTerminalOfPage(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, s.addr+"/v1/sandboxes/"+sb.ID+"/exec/pty?rows=24&cols=80&cmd=sh", &websocket.DialOptions{
		Subprotocols: []string{"pds-pty", "bearer." + s.key},
		HTTPHeader:   map[string][]string{"Origin": {"https://dashboard.example.com"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if conn.Subprotocol() != "pds-pty" || resp.Header.Get("X-Process-Id") == "" {
		t.Errorf("subprotocol %q, header %v", conn.Subprotocol(), resp.Header)
	}
	see := func(want string) {
		t.Helper()
		for out := ""; !strings.Contains(out, want); {
			kind, data, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("no %q in %q: %v", want, out, err)
			}
			if kind == websocket.MessageText && want != `"exit"` {
				t.Errorf("a text message: %s", data)
			}
			out += string(data)
		}
	}
	send := func(kind websocket.MessageType, data string) {
		t.Helper()
		if err := conn.Write(ctx, kind, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	send(websocket.MessageText, "echo te''xt; stty size\r")
	see("text")
	see("24 80")
	send(websocket.MessageText, `{"type":"resize","rows":40,"cols":90}`)
	send(websocket.MessageBinary, "sleep 0.5; echo bin''ary; stty size\r")
	see("binary")
	see("40 90")
	send(websocket.MessageText, `{"type":"other"}`) // is typed
	see(`"other"`)
	send(websocket.MessageText, "\rexit 3\r")
	see(`"exit"`)
	if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Error(err)
	}
}

// TestShell drives the command through a real terminal.
func TestShell(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	run := func(args ...string) (*exec.Cmd, *os.File) {
		cmd := program(append([]string{"sandbox", "shell", sb.ID}, args...)...)
		cmd.Env = append(os.Environ(), api.EnvBaseURL+"="+s.addr, api.EnvAPIKey+"="+s.key, "TERM=tmux-256color")
		f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
		if err != nil {
			t.Fatal(err)
		}
		limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // ends what waits for it
		t.Cleanup(func() { limit.Stop(); f.Close(); _ = cmd.Process.Kill() })
		return cmd, f
	}
	code := func(cmd *exec.Cmd, f *os.File) int {
		_, _ = io.Copy(io.Discard, f) // the end of a terminal is an error
		err := cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode()
	}
	cmd, f := run("--tag", "mine", "--cwd", "/tmp")
	say(t, f, "stty size; echo $TERM-$PWD\r", "tmux-256color-/tmp")
	if err := pty.Setsize(f, &pty.Winsize{Rows: 44, Cols: 111}); err != nil {
		t.Fatal(err)
	}
	say(t, f, "for i in $(seq 50); do [ \"$(stty size)\" = '44 111' ] && echo re''sized && break; sleep 0.1; done\r", "resized")
	say(t, f, "sleep 1000\r", "sleep 1000")
	time.Sleep(500 * time.Millisecond) // until it runs
	say(t, f, "\x03echo $?-in''terrupted\r", "130-interrupted")
	out := say(t, f, "\r~.", "detached")
	if n := code(cmd, f); n != 0 {
		t.Errorf("after detaching: %d, %q", n, out)
	}
	cmd, f = run("--tag", "mine")
	await(t, f, "130-interrupted")
	if _, err := io.WriteString(f, "exit 9\r"); err != nil {
		t.Fatal(err)
	}
	if n := code(cmd, f); n != 9 {
		t.Errorf("exit code %d", n)
	}
	cmd, f = run("--", "kill", "-9", "$$")
	if n := code(cmd, f); n != 2 { // quoted, so it is no number
		t.Errorf("exit code %d", n)
	}
	plain := program("sandbox", "shell", sb.ID)
	plain.Env = append(os.Environ(), api.EnvBaseURL+"="+s.addr, api.EnvAPIKey+"="+s.key)
	if out, err := plain.CombinedOutput(); err == nil || !strings.Contains(string(out), "sandbox exec") {
		t.Errorf("without a terminal: %s, %v", out, err)
	}
}

// TestMetricsSeries keeps a CPU busy until it is seen.
func TestMetricsSeries(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	background(t, sb, "", "timeout 50 sh -c 'while :; do :; done'")
	var s api.MetricsSeries
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		var err error
		if s, err = sb.MetricsSeries(t.Context(), "1h", "10s"); err != nil {
			t.Fatal(err)
		}
		if len(s.Samples) >= 2 {
			break
		}
	}
	if len(s.Samples) < 2 || s.StepSeconds != 10 || s.Samples[1].CPUPercent < 5 || s.Samples[1].MemoryBytes <= 0 || !s.Samples[1].Time.After(s.Samples[0].Time) {
		t.Errorf("%+v", s)
	}
	if _, err := sb.MetricsSeries(t.Context(), "yesterday", ""); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Error(err)
	}
}
