//go:build linux

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// runCode runs code that must not raise an error.
func runCode(t *testing.T, sb *client.Sandbox, code string, o client.CodeOptions) *api.CodeRun {
	t.Helper()
	run, err := sb.RunCode(t.Context(), code, o)
	if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	if run.Error != nil {
		t.Fatalf("%q: %+v", code, run.Error)
	}
	return run
}

// TestCode is contexts in the base template, whose Python has no IPython.
func TestCode(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{Env: map[string]string{"COLOUR": "blue"}})
	for _, c := range []struct{ language, set, get string }{
		{"python", "import os; x = 40", "print(x + 2, os.environ['COLOUR'], os.environ['A'], os.getcwd())"},
		{"javascript", "const x = 40", "console.log(x + 2, process.env.COLOUR, process.env.A, process.cwd())"},
		{"bash", "x=40", "echo $((x + 2)) $COLOUR $A $PWD"},
	} {
		runCode(t, sb, c.set, client.CodeOptions{Language: c.language})
		run := runCode(t, sb, c.get, client.CodeOptions{Language: c.language, Env: map[string]string{"A": "a"}})
		if run.Stdout != "42 blue a /home/user\n" || run.ExecutionCount != 2 {
			t.Errorf("%s: %+v", c.language, run)
		}
	}
	run, err := sb.RunCode(t.Context(), "while True: pass", client.CodeOptions{Timeout: 300 * time.Millisecond})
	if err != nil || !run.TimedOut || run.Error == nil || run.Error.Name != "KeyboardInterrupt" {
		t.Errorf("an endless loop: %+v, %v", run, err)
	}
	if got := runCode(t, sb, "x", client.CodeOptions{}).Text; got != "40" {
		t.Errorf("after the interrupt x is %q", got)
	}
	if _, err := sb.RunCode(t.Context(), "1", client.CodeOptions{Context: "none"}); api.CodeOf(err) != api.CodeContextNotFound {
		t.Errorf("a context that is not there: %v", err)
	}
	if _, err := sb.RunCode(t.Context(), "1", client.CodeOptions{Language: "typescript"}); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Errorf("a language that is not there: %v", err)
	}
	list, err := sb.CodeLanguages(t.Context())
	if err != nil || !slices.Equal(list, []string{"python", "javascript", "bash"}) {
		t.Errorf("languages: %v, %v", list, err)
	}
	// The ports of a sandbox are its user's unless the image says otherwise.
	if got := sh(t, sb, "curl -s -m 2 localhost:49999/health || echo none"); got != "none" {
		t.Errorf("port 49999 says %q", got)
	}
}

func TestCodeContexts(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	one, err := sb.CreateContext(t.Context(), api.CreateContext{Cwd: "/tmp", Env: map[string]string{"MINE": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	o := client.CodeOptions{Context: one.ID}
	if got := runCode(t, sb, "import os; y = 1; print(os.getcwd(), os.environ['MINE'])", o).Stdout; got != "/tmp 1\n" {
		t.Errorf("the context says %q", got)
	}
	if got := runCode(t, sb, "'y' in globals()", client.CodeOptions{}).Text; got != "False" {
		t.Errorf("the shared context knows y: %s", got)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		run, err := sb.RunCode(t.Context(), "import time\nprint('up', flush=True)\ntime.sleep(60)", o)
		if err != nil || run.Error == nil || run.Error.Name != "KeyboardInterrupt" {
			t.Errorf("interrupted: %+v, %v", run, err)
		}
	})
	time.Sleep(time.Second)
	if err := sb.InterruptContext(t.Context(), one.ID); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := sb.RestartContext(t.Context(), one.ID); err != nil {
		t.Error(err)
	}
	if got := runCode(t, sb, "'y' in globals()", o).Text; got != "False" {
		t.Errorf("y survived a restart: %s", got)
	}
	run, err := sb.RunCode(t.Context(), "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", o)
	if err != nil || run.Error == nil || run.Error.Name != "KernelDied" {
		t.Errorf("a kernel that kills itself: %+v, %v", run, err)
	}
	if got := runCode(t, sb, "1 + 1", o).Text; got != "2" {
		t.Errorf("after it 1 + 1 is %q", got)
	}
	if list, err := sb.Contexts(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("contexts: %v, %v", list, err)
	}
	if err := sb.DeleteContext(t.Context(), one.ID); err != nil {
		t.Error(err)
	}
	if err := sb.DeleteContext(t.Context(), one.ID); api.CodeOf(err) != api.CodeContextNotFound {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestCodeStream takes output as it comes, and interrupts what it leaves.
func TestCodeStream(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	n := 0
	for e, err := range sb.StreamCode(t.Context(), "import time\nfor i in range(1000):\n  print(i, flush=True); time.sleep(0.2)", client.CodeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "stdout" {
			if n++; n == 3 {
				break
			}
		}
	}
	began := time.Now()
	if got := runCode(t, sb, "0 < i < 100", client.CodeOptions{}).Text; got != "True" {
		t.Errorf("i was not interrupted: %s", got)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the interrupt took %s", took)
	}
	total := 0
	for e, err := range sb.StreamCode(t.Context(), "print('x' * 63 * 1024 + '\\n', end='')\n_ = [print('y' * 1023) for _ in range(32 * 1024)]", client.CodeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		total += len(e.Text)
	}
	if want := 63*1024 + 1 + 32<<20; total != want {
		t.Errorf("%d bytes came, not %d", total, want)
	}
}

// TestCodeFork goes on in copies with the same variables and other randomness.
func TestCodeFork(t *testing.T) {
	t.Parallel()
	parent := create(t, sharedServer(t), api.CreateSandbox{})
	for _, c := range []struct{ language, set, get, random string }{
		{"python", "import random; x = 40; random.seed(7)", "x + 2", "random.random()"},
		{"javascript", "const x = 40; Math.random()", "x + 2", "[Math.random(), require('crypto').randomUUID()].join()"},
		{"bash", "x=40; RANDOM=7", "echo -n $((x + 2))", "echo $RANDOM $RANDOM"},
	} {
		o := client.CodeOptions{Language: c.language}
		runCode(t, parent, c.set, o)
		seen := map[string]bool{}
		tree, err := parent.ForkTree(t.Context(), 2, api.Fork{})
		if err != nil {
			t.Fatal(err)
		}
		for _, child := range tree.Children {
			if run := runCode(t, child, c.get, o); run.Text+run.Stdout != "42" {
				t.Errorf("%s: a child says %+v", c.language, run)
			}
			run := runCode(t, child, c.random, o)
			seen[run.Text+run.Stdout] = true
			if err := child.Delete(t.Context()); err != nil {
				t.Error(err)
			}
		}
		run := runCode(t, parent, c.random, o)
		seen[run.Text+run.Stdout] = true
		if len(seen) != 3 {
			t.Errorf("%s: three machines drew %v", c.language, seen)
		}
	}
	if err := parent.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := runCode(t, parent, "x + 2", client.CodeOptions{}).Text; got != "42" {
		t.Errorf("after sleep x + 2 is %q", got)
	}
}

// TestCodeGoesOn lets code that runs run on in a copy, where its client is not.
func TestCodeGoesOn(t *testing.T) {
	t.Parallel()
	parent := create(t, sharedServer(t), api.CreateSandbox{})
	runCode(t, parent, "import time; n = 0", client.CodeOptions{})
	var wg sync.WaitGroup
	wg.Go(func() { runCode(t, parent, "while n < 40: n += 1; time.sleep(0.1)", client.CodeOptions{}) })
	time.Sleep(time.Second)
	child, err := parent.Fork(t.Context(), api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	for name, sb := range map[string]*client.Sandbox{"child": child, "parent": parent} {
		if got := runCode(t, sb, "n", client.CodeOptions{}).Text; got != "40" {
			t.Errorf("in the %s the code came to %s", name, got)
		}
	}
	wg.Wait()
	if err := child.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCodeInterpreter is the template with IPython, NumPy, pandas and
// Matplotlib, and the server that clients of another platform know.
func TestCodeInterpreter(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{Template: "code-interpreter-v1"})
	list, err := sb.Contexts(t.Context())
	if err != nil || len(list) != 2 || list[0].Language != "python" || list[1].Language != "javascript" {
		t.Fatalf("contexts of a new sandbox: %v, %v", list, err)
	}
	run := runCode(t, sb, `import pandas, matplotlib.pyplot as plt
plt.plot([1, 2, 3], [2, 4, 8], label="growth"); plt.title("T"); plt.xlabel("t (s)"); plt.show()
pandas.DataFrame({"a": [1, 2]})`, client.CodeOptions{})
	if len(run.Results) != 2 || run.ExecutionCount != 1 {
		t.Fatalf("%d results, execution %d: %+v", len(run.Results), run.ExecutionCount, run)
	}
	plot, table := run.Results[0], run.Results[1]
	data, err := base64.StdEncoding.DecodeString(plot.PNG)
	if err != nil {
		t.Fatal(err)
	}
	if picture, err := png.Decode(bytes.NewReader(data)); err != nil || picture.Bounds().Dx() < 100 {
		t.Errorf("the picture: %v", err)
	}
	var chart struct {
		Type, Title string
		XUnit       string `json:"x_unit"`
		Elements    []struct {
			Label  string
			Points [][2]float64
		}
	}
	if err := json.Unmarshal(plot.Chart, &chart); err != nil || chart.Type != "line" || chart.Title != "T" || chart.XUnit != "s" ||
		len(chart.Elements) != 1 || chart.Elements[0].Label != "growth" || fmt.Sprint(chart.Elements[0].Points) != "[[1 2] [2 4] [3 8]]" {
		t.Errorf("the chart: %s, %v", plot.Chart, err)
	}
	if string(table.Data) != `{"a":[1,2]}` || !strings.Contains(table.HTML, "<table") || !table.IsMain {
		t.Errorf("the table: %+v", table)
	}
	if got := runCode(t, sb, "const n: number = 41; n + 1", client.CodeOptions{Language: "typescript"}).Text; got != "42" {
		t.Errorf("TypeScript says %q", got)
	}
	got := sh(t, sb, `curl -s localhost:49999/health; echo; curl -sN -X POST localhost:49999/execute -d '{"code":"1+1"}'`)
	if want := `OK
{"type":"number_of_executions","execution_count":2}
{"type": "result", "is_main_result": true, "text": "2"}
{"type":"end_of_execution"}`; got != want {
		t.Errorf("port 49999 says\n%s", got)
	}
	// Two sandboxes of one snapshot draw different numbers in the kernel that
	// both were given.
	other := create(t, sharedServer(t), api.CreateSandbox{Template: "code-interpreter"})
	const draw = "import random, numpy; print(random.random(), numpy.random.rand())"
	if a, b := runCode(t, sb, draw, client.CodeOptions{}).Stdout, runCode(t, other, draw, client.CodeOptions{}).Stdout; a == b {
		t.Errorf("both drew %s", a)
	}
	times := make([]time.Duration, 50)
	for i := range times {
		began := time.Now()
		runCode(t, other, "1 + 1", client.CodeOptions{})
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	t.Logf("1 + 1: p50 %s, p90 %s", times[25], times[45])
}
