package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

func TestExecForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{Env: map[string]string{"OUTER": "o", "BOTH": "outer"}})
	dir := t.TempDir()
	for name, c := range map[string]struct {
		req    api.Exec
		stdout string
		stderr string
		code   int
		signal string
	}{
		"line":            {api.Exec{Cmd: cmd("echo a | tr a b; echo $((1+2))")}, "b\n3\n", "", 0, ""},
		"program":         {api.Exec{Cmd: cmd("echo"), Args: []string{"$HOME", "a b"}}, "$HOME a b\n", "", 0, ""},
		"list":            {api.Exec{Cmd: cmd([]string{"echo", "x;", "y"})}, "x; y\n", "", 0, ""},
		"list and args":   {api.Exec{Cmd: cmd([]string{"echo", "x"}), Args: []string{"y"}}, "x y\n", "", 0, ""},
		"no args":         {api.Exec{Cmd: cmd("echo x; echo y"), Args: []string{}}, "x\ny\n", "", 0, ""},
		"exit code":       {api.Exec{Cmd: cmd("echo out; echo err >&2; exit 42")}, "out\n", "err\n", 42, ""},
		"killed":          {api.Exec{Cmd: cmd("kill -9 $$")}, "", "", 137, "SIGKILL"},
		"terminated":      {api.Exec{Cmd: cmd("kill -TERM $$")}, "", "", 143, "SIGTERM"},
		"not found":       {api.Exec{Cmd: cmd([]string{"no-such-program"})}, "", "no-such-program: not found\n", 127, ""},
		"no such path":    {api.Exec{Cmd: cmd([]string{"/no/such"})}, "", "/no/such: not found\n", 127, ""},
		"environment":     {api.Exec{Cmd: cmd("echo $OUTER $BOTH"), Env: map[string]string{"BOTH": "inner"}}, "o inner\n", "", 0, ""},
		"directory":       {api.Exec{Cmd: cmd("pwd"), Cwd: dir}, dir + "\n", "", 0, ""},
		"input":           {api.Exec{Cmd: cmd("cat"), Stdin: ptr("in\n")}, "in\n", "", 0, ""},
		"empty input":     {api.Exec{Cmd: cmd("cat; echo end"), Stdin: ptr("")}, "end\n", "", 0, ""},
		"no input":        {api.Exec{Cmd: cmd("cat; echo end")}, "end\n", "", 0, ""},
		"unread input":    {api.Exec{Cmd: cmd("echo done"), Stdin: ptr(strings.Repeat("x", 1<<20))}, "done\n", "", 0, ""},
		"binary output":   {api.Exec{Cmd: cmd(`printf 'a\377\376b\000c'`)}, "a\uFFFDb\x00c", "", 0, ""},
		"unicode":         {api.Exec{Cmd: cmd("echo ä€😀")}, "ä€😀\n", "", 0, ""},
		"fast enough":     {api.Exec{Cmd: cmd("echo quick"), TimeoutSeconds: 60}, "quick\n", "", 0, ""},
		"long one":        {api.Exec{Cmd: cmd("echo " + strings.Repeat("x", 100<<10) + " | wc -c")}, "102401\n", "", 0, ""},
		"line not found":  {api.Exec{Cmd: cmd("no-such-program 2>/dev/null")}, "", "", 127, ""},
		"leading newline": {api.Exec{Cmd: cmd("\n  echo x\n")}, "x\n", "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.req.User = "root"
			res, err := w.Exec(t.Context(), alice, b.ID, c.req)
			must(t, err)
			if res.Stdout != c.stdout || res.Stderr != c.stderr || res.ExitCode != c.code || res.Signal != c.signal || res.TimedOut || res.Truncated {
				t.Fatalf("%+v", res)
			}
			if c.code != 127 && (res.PID == 0 || res.DurationMS <= 0) {
				t.Fatalf("%+v", res)
			}
		})
	}
}

func TestExecRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	raw := func(s string) api.Exec { return api.Exec{Cmd: json.RawMessage(s)} }
	for name, c := range map[string]struct {
		req  api.Exec
		code api.Code
	}{
		"missing":          {api.Exec{}, api.CodeInvalidRequest},
		"null":             {raw("null"), api.CodeInvalidRequest},
		"number":           {raw("5"), api.CodeInvalidRequest},
		"object":           {raw(`{"a":1}`), api.CodeInvalidRequest},
		"broken":           {raw(`"abc`), api.CodeInvalidRequest},
		"empty":            {raw(`""`), api.CodeInvalidRequest},
		"blank":            {raw(`"  \n"`), api.CodeInvalidRequest},
		"empty list":       {raw(`[]`), api.CodeInvalidRequest},
		"list of nothing":  {raw(`[""]`), api.CodeInvalidRequest},
		"mixed list":       {raw(`["a",1]`), api.CodeInvalidRequest},
		"null in the list": {raw(`["a",null]`), api.CodeInvalidRequest},
		"NUL":              {raw(`"a\u0000b"`), api.CodeInvalidRequest},
		"NUL in args":      {api.Exec{Cmd: cmd("a"), Args: []string{"\x00"}}, api.CodeInvalidRequest},
		"huge":             {api.Exec{Cmd: cmd(strings.Repeat("x", 1<<20+1))}, api.CodeTooLarge},
		"huge env":         {api.Exec{Cmd: cmd("true"), Env: map[string]string{"A": strings.Repeat("x", 65<<10)}}, api.CodeTooLarge},
		"bad env":          {api.Exec{Cmd: cmd("true"), Env: map[string]string{"A=": ""}}, api.CodeInvalidRequest},
		"NUL in cwd":       {api.Exec{Cmd: cmd("true"), Cwd: "/\x00"}, api.CodeInvalidRequest},
		"cwd not there":    {api.Exec{Cmd: cmd("true"), Cwd: "/no/such", User: "root"}, api.CodeProcessInvalid},
		"user not there":   {api.Exec{Cmd: cmd("true"), User: "no-such-user"}, api.CodeProcessInvalid},
		"negative timeout": {api.Exec{Cmd: cmd("true"), TimeoutSeconds: -1}, api.CodeInvalidRequest},
		"endless timeout":  {api.Exec{Cmd: cmd("true"), TimeoutSeconds: 1e300}, api.CodeInvalidRequest},
		"huge input":       {api.Exec{Cmd: cmd("true"), Stdin: ptr(strings.Repeat("x", 17<<20))}, api.CodeTooLarge},
		"a directory":      {api.Exec{Cmd: cmd([]string{"/tmp"}), User: "root"}, api.CodeProcessInvalid},
	} {
		_, err := w.Exec(t.Context(), alice, b.ID, c.req)
		if api.CodeOf(err) != c.code || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExecTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	begun := time.Now()
	res, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("echo $$; sleep 1000 & sleep 1000"), User: "root", TimeoutSeconds: 0.5})
	must(t, err)
	if !res.TimedOut || res.ExitCode != 124 || time.Since(begun) > 20*time.Second {
		t.Fatalf("%+v", res)
	}
	eventually(t, "the process is gone", ended(t, strings.TrimSpace(res.Stdout)))
}

// ended reports whether a process of this machine, where the guest program of
// these tests runs, has ended.
func ended(t testing.TB, pid string) func() bool {
	t.Helper()
	if n, err := strconv.Atoi(pid); err != nil || n <= 1 {
		t.Fatalf("%q is not a pid", pid)
	}
	return func() bool {
		_, err := os.Stat("/proc/" + pid)
		return errors.Is(err, os.ErrNotExist)
	}
}

func TestExecOutputIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	res := w.sh(b.ID, "head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2; exit 3")
	if len(res.Stdout) != 16<<20 || !res.Truncated || res.Stderr != "end\n" || res.ExitCode != 3 {
		t.Fatal(len(res.Stdout), res.Truncated, res.Stderr, res.ExitCode)
	}
}

func TestExecInBackground(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	out := t.TempDir() + "/out"
	ctx, cancel := context.WithCancel(t.Context())
	res, err := w.Exec(ctx, alice, b.ID, api.Exec{Cmd: cmd("cat > " + out + "; sleep 1000"), User: "root", Stdin: ptr("fed"), Background: true})
	must(t, err)
	cancel()
	eventually(t, "it got its input", func() bool { data, _ := os.ReadFile(out); return string(data) == "fed" })
	gone := ended(t, strconv.Itoa(res.PID))
	time.Sleep(time.Second)
	if gone() {
		t.Fatal("a command in the background ended with its client")
	}
	client, err := w.Guest(t.Context(), alice, b.ID)
	must(t, err)
	must(t, client.KillTree(t.Context(), res.PID))
	eventually(t, "it is gone", gone)
}

// Whoever leaves takes the command along, from either call and also when the
// reader of a stream fails.
func TestClientLeavesDuringExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	dir := t.TempDir()
	pidOf := func(file string) string {
		var pid string
		eventually(t, "the command has started", func() bool {
			data, _ := os.ReadFile(file)
			pid = strings.TrimSpace(string(data))
			return strings.HasSuffix(string(data), "\n")
		})
		return pid
	}
	line := func(file string) api.Exec {
		return api.Exec{Cmd: cmd("sleep 1000 & echo $! > " + file + "; echo ready; wait"), User: "root"}
	}
	t.Run("buffered", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := w.Exec(ctx, alice, b.ID, line(dir+"/a")); failed <- err }()
		gone := ended(t, pidOf(dir+"/a"))
		leave()
		wantCode(t, <-failed, api.CodeCanceled)
		eventually(t, "its child is gone", gone)
	})
	t.Run("stream", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		err := w.ExecStream(ctx, alice, b.ID, line(dir+"/b"), func(e api.ExecEvent) error {
			if e.Type == "stdout" {
				leave()
			}
			return nil
		})
		wantCode(t, err, api.CodeCanceled)
		eventually(t, "its child is gone", ended(t, pidOf(dir+"/b")))
	})
	t.Run("emit", func(t *testing.T) {
		broken := errors.New("broken pipe")
		err := w.ExecStream(t.Context(), alice, b.ID, line(dir+"/c"), func(e api.ExecEvent) error {
			if e.Type == "stdout" {
				return broken
			}
			return nil
		})
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		eventually(t, "its child is gone", ended(t, pidOf(dir+"/c")))
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Exec(ctx, alice, b.ID, line(dir+"/d"))
		wantCode(t, err, api.CodeTimeout)
		eventually(t, "its child is gone", ended(t, pidOf(dir+"/d")))
	})
}

func TestExecStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	collect := func(req api.Exec) (types []string, out string, last api.ExecEvent) {
		t.Helper()
		req.User = "root"
		must(t, w.ExecStream(t.Context(), alice, b.ID, req, func(e api.ExecEvent) error {
			types, last = append(types, e.Type), e
			out += string(e.Data)
			return nil
		}))
		return types, out, last
	}
	types, out, last := collect(api.Exec{Cmd: cmd(`printf '\377'; exit 7`)})
	if strings.Join(types, " ") != "start stdout exit" || out != "\xff" || last.Result.ExitCode != 7 || last.Result.Stdout != "" {
		t.Fatal(types, out, last)
	}
	types, out, last = collect(api.Exec{Cmd: cmd([]string{"nosuch"})})
	if strings.Join(types, " ") != "start stderr exit" || out != "nosuch: not found\n" || last.Result.ExitCode != 127 {
		t.Fatal(types, out, last)
	}
	types, _, last = collect(api.Exec{Cmd: cmd("echo x; sleep 1000"), TimeoutSeconds: 1})
	if strings.Join(types, " ") != "start stdout exit" || !last.Result.TimedOut || last.Result.ExitCode != 124 {
		t.Fatal(types, last)
	}
	err := w.ExecStream(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("")}, func(api.ExecEvent) error { return nil })
	wantCode(t, err, api.CodeInvalidRequest)
}

// It does not run beside other tests, whose memory would be counted.
func TestExecStreamInConstantMemory(t *testing.T) {
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	const size = 200 << 20
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got, peak, next := 0, uint64(0), 0
	must(t, w.ExecStream(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("head -c " + strconv.Itoa(size) + " /dev/zero"), User: "root"}, func(e api.ExecEvent) error {
		if got += len(e.Data); got > next {
			next += size / 50
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapInuse)
		}
		return nil
	}))
	if got != size {
		t.Fatal(got)
	}
	if grown := int64(peak) - int64(before.HeapInuse); grown > 32<<20 {
		t.Fatalf("the heap grew by %d MiB", grown>>20)
	}
}

func TestStartCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	ctx, leave := context.WithCancel(t.Context())
	proc, client, err := w.StartCommand(ctx, alice, b.ID, api.Exec{Cmd: cmd("cat"), User: "root"})
	must(t, err)
	must(t, client.SendInput(ctx, proc.PID(), []byte("typed")))
	e, err := proc.Recv()
	if err != nil || string(e.Stdout) != "typed" {
		t.Fatal(e, err)
	}
	leave()
	_, err = proc.Recv()
	wantCode(t, err, api.CodeCanceled)
	proc.Close()
	must(t, client.KillTree(t.Context(), proc.PID()))
	_, _, err = w.StartCommand(t.Context(), alice, b.ID, api.Exec{Cmd: cmd([]string{"nosuch"})})
	wantCode(t, err, api.CodeProcessInvalid)
}
