//go:build linux

package kernels

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hostSystem runs kernels as children of the test.
type hostSystem struct {
	t    *testing.T
	home string

	mu  sync.Mutex
	env map[string]string
}

func (h *hostSystem) Has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}
func (h *hostSystem) Home() string { return h.home }
func (h *hostSystem) Environ() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.env
}

func (h *hostSystem) set(env map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.env = env
}

func (h *hostSystem) Start(_ context.Context, p Program) (*Process, error) {
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir = p.Dir
	cmd.Env = os.Environ()
	for k, v := range merged(h.Environ(), p.Env) {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var mine, theirs [4]*os.File
	for i := range 4 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if mine[i], theirs[i] = r, w; i == 2 {
			mine[i], theirs[i] = w, r
		}
	}
	cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	cmd.ExtraFiles = theirs[2:]
	err := cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state is read from cmd
		close(done)
	}()
	kill := func(pid int, sig syscall.Signal) {
		if !isDone(done) {
			_ = syscall.Kill(pid, sig)
		}
	}
	return &Process{
		PID: cmd.Process.Pid, Stdout: mine[0], Stderr: mine[1], Commands: mine[2], Events: mine[3], Done: done,
		Status:    func() string { <-done; return cmd.ProcessState.String() },
		Interrupt: func() { kill(-cmd.Process.Pid, syscall.SIGINT) },
		Signal:    func(s syscall.Signal) { kill(cmd.Process.Pid, s) },
		Kill:      func() { kill(-cmd.Process.Pid, syscall.SIGKILL) },
		Log:       func(bool, []byte) {},
	}, nil
}

// world is a server of contexts on the test's machine.
type world struct {
	t   *testing.T
	sys *hostSystem
	set *Contexts
	url string
}

func newWorld(t *testing.T, needs ...string) *world {
	t.Helper()
	t.Parallel()
	for _, p := range needs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("SKIPPED: %s is not installed", p)
		}
	}
	sys := &hostSystem{t: t, home: t.TempDir(), env: map[string]string{}}
	set := New(sys, nil)
	server := httptest.NewServer(set.Handler())
	t.Cleanup(func() { set.Close(); server.Close() })
	return &world{t: t, sys: sys, set: set, url: server.URL}
}

// line is any event.
type line struct {
	Type      string
	Text      string
	Timestamp *float64
	Count     *int            `json:"execution_count"`
	Main      *bool           `json:"is_main_result"`
	HTML      string          `json:"html"`
	PNG       string          `json:"png"`
	SVG       string          `json:"svg"`
	JSON      json.RawMessage `json:"json"`
	Data      json.RawMessage
	Chart     json.RawMessage
	Latex     string
	Extra     json.RawMessage
	Name      *string
	Value     *string
	Traceback *string
	TimedOut  bool `json:"timed_out"`
}

func (w *world) execute(body map[string]any) []line {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	return w.executeIn(ctx, body)
}

func (w *world) executeIn(ctx context.Context, body map[string]any) []line {
	w.t.Helper()
	data, _ := json.Marshal(body)
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/execute", strings.NewReader(string(data)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s for %s", resp.Status, data)
	}
	var out []line
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, MaxEvent)
	for scan.Scan() {
		var l line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			w.t.Fatalf("%q: %v", scan.Text(), err)
		}
		if l.Type == "keepalive" && len(out) == 0 {
			continue // the kernel takes long to start on a machine with much to do
		}
		out = append(out, l)
	}
	return out
}

// run runs code of a language and gives its events.
func (w *world) run(language, code string) events {
	w.t.Helper()
	return w.execute(map[string]any{"code": code, "language": language})
}

type events []line

func (e events) kinds() string {
	var out []string
	for _, l := range e {
		out = append(out, l.Type)
	}
	return strings.Join(out, " ")
}

func (e events) output(kind string) string {
	var b strings.Builder
	for _, l := range e {
		if l.Type == kind {
			b.WriteString(l.Text)
		}
	}
	return b.String()
}

func (e events) first(kind string) line {
	if i := slices.IndexFunc(e, func(l line) bool { return l.Type == kind }); i >= 0 {
		return e[i]
	}
	return line{}
}

// main is the text of the main result.
func (e events) main() string { return e.first("result").Text }

func (e events) problem() string {
	l := e.first("error")
	if l.Name == nil || l.Value == nil || l.Traceback == nil {
		return ""
	}
	return *l.Name + ": " + *l.Value
}

func want(t *testing.T, what, got, expected string) {
	t.Helper()
	if got != expected {
		t.Errorf("%s is %q, not %q", what, got, expected)
	}
}

// TestOrder is the protocol's order of events and their fields.
func TestOrder(t *testing.T) {
	w := newWorld(t, "python3")
	e := w.run("", "import sys, os\nprint('a')\nprint('b', file=sys.stderr)\nos.system('echo c')\n42")
	want(t, "the order", regexp.MustCompile(`(stdout )+`).ReplaceAllString(e.kinds(), "stdout "), "number_of_executions stdout stderr stdout result end_of_execution")
	if n := e[0].Count; n == nil || *n != 1 {
		t.Errorf("the first event is %+v", e[0])
	}
	want(t, "stdout", strings.ReplaceAll(e.output("stdout"), "\n", ""), "ac")
	for _, l := range e {
		if (l.Type == "stdout" || l.Type == "stderr") && l.Timestamp == nil {
			t.Errorf("%+v has no timestamp", l)
		}
		if l.Type == "result" && (l.Main == nil || !*l.Main) {
			t.Errorf("%+v is not the main result", l)
		}
	}
	e = w.run("python", "print(1); print(2); _ = os.system('echo 3'); print(4); import subprocess; _ = subprocess.run(['echo', '5']); print(6)")
	want(t, "output of children between the code's own", e.output("stdout"), "1\n2\n3\n4\n5\n6\n")
	e = w.run("python", "'quoted'")
	want(t, "the text", e.main(), "quoted")
	if n := e[0].Count; n == nil || *n != 3 {
		t.Errorf("the second execution begins with %+v", e[0])
	}
	e = w.run("python", "1/0")
	want(t, "the order", e.kinds(), "number_of_executions error end_of_execution")
	want(t, "the error", e.problem(), "ZeroDivisionError: division by zero")
	if !strings.Contains(*e.first("error").Traceback, "ZeroDivisionError") {
		t.Errorf("the traceback is %q", *e.first("error").Traceback)
	}
}

func TestRequests(t *testing.T) {
	w := newWorld(t, "python3", "bash")
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/health", "", 200},
		{"POST", "/execute", `{}`, 400},
		{"POST", "/execute", `{"code":"1","context_id":"x","language":"python"}`, 400},
		{"POST", "/execute", `{"code":"1","context_id":"x"}`, 404},
		{"POST", "/execute", `{"code":"1","language":"cobol"}`, 400},
		{"POST", "/execute", `{"code":"echo","context_id":null,"language":"bash","env_vars":null}`, 200},
		{"POST", "/contexts", `{"language":null,"cwd":null}`, 200},
		{"POST", "/contexts", ``, 200},
		{"POST", "/contexts", `{"cwd":"/nowhere"}`, 400},
		{"DELETE", "/contexts/x", "", 404},
		{"POST", "/contexts/x/restart", "", 404},
		{"GET", "/contexts", "", 200},
		{"POST", "/execute", `{"code":`, 400},
	} {
		req, _ := http.NewRequest(c.method, w.url+c.path, strings.NewReader(c.body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, resp.Status)
		}
	}
}

// languagesHere run the same steps: the state stays, errors do not end it,
// variables of one call are gone after it.
var languagesHere = map[string]struct {
	needs                           []string
	set, get, fail, loop, env, cwd  string
	problem, interrupted, unset, hi string
}{
	"python": {
		needs: []string{"python3"},
		set:   "x = 40", get: "print(x + 2)", fail: "raise ValueError('no')", problem: "ValueError: no",
		loop: "while True: pass", interrupted: "KeyboardInterrupt: ", hi: "print('hi ü')",
		env: "import os; print(os.environ.get('A'), os.environ.get('G'))", unset: "None", cwd: "import os; print(os.getcwd())",
	},
	"javascript": {
		needs: []string{"node"},
		set:   "const x = await Promise.resolve(40)", get: "console.log(x + 2)", fail: "throw new TypeError('no')", problem: "TypeError: no",
		loop: "while (true) {}", interrupted: "Interrupted: the execution was interrupted", hi: "console.log('hi ü')",
		env: "console.log(process.env.A, process.env.G)", unset: "undefined", cwd: "console.log(process.cwd())",
	},
	"bash": {
		needs: []string{"bash"},
		set:   "x=40", get: "echo $((x + 2))", fail: "false", problem: "ExitStatus: exit status 1",
		loop: "while true; do sleep 0.1; done", interrupted: "ExitStatus: exit status 130", hi: "echo 'hi ü'",
		env: "echo ${A-none} ${G-none}", unset: "none", cwd: "pwd",
	},
}

func TestLanguages(t *testing.T) {
	t.Parallel()
	for name, c := range languagesHere {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.needs...)
			want(t, "kinds", w.run(name, c.set).kinds(), "number_of_executions end_of_execution")
			want(t, "the state", w.run(name, c.get).output("stdout"), "42\n")
			want(t, "the error", w.run(name, c.fail).problem(), c.problem)
			want(t, "the state after an error", w.run(name, c.get).output("stdout"), "42\n")
			want(t, "text", w.run(name, c.hi).output("stdout"), "hi ü\n")
			w.sys.set(map[string]string{"G": "g"})
			e := events(w.execute(map[string]any{"code": c.env, "language": name, "env_vars": map[string]string{"A": "a"}}))
			want(t, "the environment", e.output("stdout"), "a g\n")
			w.sys.set(map[string]string{})
			want(t, "the environment after it", w.run(name, c.env).output("stdout"), c.unset+" "+c.unset+"\n")
			want(t, "cwd", w.run(name, c.cwd).output("stdout"), w.sys.home+"\n")
			e = w.execute(map[string]any{"code": c.loop, "language": name, "timeout_ms": 300})
			want(t, "the interrupt", e.problem(), c.interrupted)
			if !e[len(e)-1].TimedOut {
				t.Errorf("the end is %+v", e[len(e)-1])
			}
			want(t, "the state after an interrupt", w.run(name, c.get).output("stdout"), "42\n")
		})
	}
}

// TestClientLeaves interrupts what nobody waits for.
func TestClientLeaves(t *testing.T) {
	w := newWorld(t, "python3")
	w.run("python", "n = 0")
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	data := `{"code":"import time\nwhile True:\n  n += 1\n  time.sleep(0.01)"}`
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/execute", strings.NewReader(data))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = bufio.NewReader(resp.Body).ReadString(0) // it ends with the context
		resp.Body.Close()
	}
	e := w.run("python", "print(n > 0)")
	want(t, "the state", e.output("stdout"), "True\n")
}

// TestLoopAfterAwait interrupts loops that JavaScript enters from its event loop,
// time and again, and loses no state.
func TestLoopAfterAwait(t *testing.T) {
	w := newWorld(t, "node")
	w.run("javascript", "let n = 41")
	for i, code := range []string{
		"await new Promise(done => setTimeout(done, 10)); n++; while (true) {}",
		"while (true) {}",
		"await null; while (true) {}",
		"async function f() { for (;;) await null }; await f()",
		"await new Promise(() => {})",
		"setTimeout(() => { while (true) {} }, 10); await new Promise(() => {})",
	} {
		e := events(w.execute(map[string]any{"code": code, "language": "javascript", "timeout_ms": 300}))
		want(t, code, e.problem(), "Interrupted: the execution was interrupted")
		if !e[len(e)-1].TimedOut {
			t.Errorf("%s: the end is %+v", code, e[len(e)-1])
		}
		e = w.run("javascript", "n")
		want(t, "the state after "+code, e.main(), "42")
		if n := e[0].Count; n == nil || *n != 2*i+3 {
			t.Errorf("%s cost its kernel: %+v", code, e[0])
		}
	}
}

// TestDeath tells of a kernel that ends, and goes on with another.
func TestDeath(t *testing.T) {
	w := newWorld(t, "python3")
	e := w.run("python", "import os, signal; print('last'); os.kill(os.getpid(), signal.SIGKILL)")
	want(t, "the order", e.kinds(), "number_of_executions stdout error end_of_execution")
	if !strings.HasPrefix(e.problem(), "KernelDied: ") {
		t.Errorf("the error is %q", e.problem())
	}
	e = w.run("python", "1 + 1")
	want(t, "the result of the next kernel", e.main(), "2")
	if *e[0].Count != 1 {
		t.Errorf("the next kernel begins with execution %d", *e[0].Count)
	}
}

// TestLargeOutput goes through at the pace of its reader, whole.
func TestLargeOutput(t *testing.T) {
	w := newWorld(t, "python3", "bash", "node")
	for name, code := range map[string]string{
		"python":     "import sys; _ = sys.stdout.write('0123456789abcde\\n' * 500000)",
		"bash":       "head -c 8000000 /dev/zero | tr '\\0' x",
		"javascript": "process.stdout.write('0123456789abcde\\n'.repeat(500000)); undefined",
	} {
		if n := len(w.run(name, code).output("stdout")); n != 8000000 {
			t.Errorf("%s: %d bytes came", name, n)
		}
	}
}

// TestContexts are apart, and one's executions come one after another.
func TestContexts(t *testing.T) {
	w := newWorld(t, "python3")
	sub := w.sys.home + "/sub"
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	a, err := w.set.Create("python", "sub", map[string]string{"MINE": "1"})
	if err != nil {
		t.Fatal(err)
	}
	w.run("python", "x = 'shared'")
	e := events(w.execute(map[string]any{"code": "import os; print('x' in globals(), os.getcwd(), os.environ['MINE'])", "context_id": a.ID}))
	want(t, "the other context", e.output("stdout"), "False "+sub+" 1\n")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			w.execute(map[string]any{"code": "import time; y = globals().get('y', 0); z = y; time.sleep(0.1); y = z + 1", "context_id": a.ID})
		})
	}
	wg.Wait()
	e = w.execute(map[string]any{"code": "y", "context_id": a.ID})
	want(t, "the count", e.main(), "4")
	a.Restart()
	want(t, "y after a restart", events(w.execute(map[string]any{"code": "'y' in globals()", "context_id": a.ID})).main(), "False")
	if err := w.set.Delete(a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.set.Get(a.ID); err != ErrNotFound {
		t.Errorf("a deleted context gives %v", err)
	}
}

// TestKeepalive breaks silences.
func TestKeepalive(t *testing.T) {
	w := newWorld(t, "python3")
	e := w.run("python", "import time; time.sleep(6)")
	want(t, "the order", e.kinds(), "number_of_executions keepalive end_of_execution")
}

// TestRenew makes a kernel draw other numbers, also while it runs.
func TestRenew(t *testing.T) {
	w := newWorld(t, "python3", "node")
	e := w.run("python", "import random; random.seed(7); a = random.random(); random.seed(7)")
	want(t, "the error", e.problem(), "")
	w.set.Renew()
	want(t, "the same number", w.run("python", "a == random.random()").main(), "False")
	want(t, "a number in range", w.run("javascript", "const r = Math.random(); r >= 0 && r < 1").main(), "true")
	w.set.Renew()
	want(t, "javascript after it", w.run("javascript", "require('crypto').randomUUID().length").main(), "36")
}

// TestJavaScript is what people write at a console.
func TestJavaScript(t *testing.T) {
	w := newWorld(t, "node")
	for _, c := range []struct{ code, text, problem string }{
		{"1 + 1", "2", ""},
		{"const a = 1", "", ""},
		{"const a = 2; a", "2", ""},
		{"await new Promise(r => setTimeout(() => r('later'), 10))", "later", ""},
		{"import path from 'path'\nimport { join as j } from 'node:path'\npath.join('a', j('b'))", "a/b", ""},
		{"(await import('os')).EOL.length", "1", ""},
		{"({a: [1, 2]})", "{ a: [ 1, 2 ] }", ""},
		{"function f() { return 5 }; f()", "5", ""},
		{"nope", "", "ReferenceError: nope is not defined"},
		{"let 1", "", "SyntaxError: Unexpected number"},
		{"Promise.reject(new RangeError('x'))", "", "RangeError: x"},
		{"throw 5", "", "Uncaught: 5"},
		{"f()", "5", ""},
	} {
		e := w.run("js", c.code)
		want(t, "the result of "+c.code, e.main(), c.text)
		want(t, "the error of "+c.code, e.problem(), c.problem)
	}
	want(t, "json", string(w.run("js", "({a: [1, 2]})").first("result").JSON), `{"a":[1,2]}`)
	e := w.run("js", "display.html('<b>x</b>'); display({'text/plain': 'p', 'x/y': 1}, {raw: true}); undefined")
	want(t, "html", e.first("result").HTML, "<b>x</b>")
	want(t, "extra", string(e[2].Extra), `{"x/y":1}`)
}

// TestPythonDisplay is rich results, with IPython and without.
func TestPythonDisplay(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"ipython", "plain"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, "python3")
			if mode == "plain" {
				w.hideIPython()
			} else if exec.Command("python3", "-c", "import IPython").Run() != nil {
				t.Skip("SKIPPED: IPython is not installed")
			}
			displays(t, w)
		})
	}
}

// hideIPython makes kernels run without it.
func (w *world) hideIPython() {
	dir := w.t.TempDir()
	if err := os.WriteFile(dir+"/IPython.py", []byte("raise ImportError('hidden')"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.sys.set(map[string]string{"PYTHONPATH": dir})
}

func displays(t *testing.T, w *world) {
	e := w.run("python", "class H:\n  def _repr_html_(self): return '<b>h</b>'\n  def _repr_latex_(self): return '$x$'\n  def __repr__(self): return 'H!'\ndisplay(H())\nH()")
	want(t, "the order", e.kinds(), "number_of_executions result result end_of_execution")
	for i, main := range []bool{false, true} {
		r := e[1+i]
		if r.Main == nil || *r.Main != main || r.HTML != "<b>h</b>" || r.Latex != "$x$" || r.Text != "H!" {
			t.Errorf("result %d is %+v", i, r)
		}
	}
	want(t, "await", w.run("python", "import asyncio\nawait asyncio.sleep(0, 'slept')").main(), "slept")
	want(t, "a semicolon", w.run("python", "5;").main(), "")
	want(t, "a syntax error", w.run("python", "1 +").first("error").Type, "error")
	want(t, "exit", *w.run("python", "import sys; sys.exit(3)").first("error").Name, "SystemExit")
	want(t, "after exit", w.run("python", "1").main(), "1")
	want(t, "nan", w.run("python", "float('nan')").main(), "nan")
}
