package cli_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pandastack/pandastack/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"pandastack": func() {
			os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
		},
	})
}

// TestScripts runs the scripts that need no server.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"fake":  fake,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			// Nothing listens on port 1 of the loopback address.
			e.Setenv("PANDASTACK_API", "http://127.0.0.1:1")
			return nil
		},
	})
}

// exits runs a program and checks its exit code: exits CODE PROGRAM ARG...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := exitCode(err); got != args[0] {
		ts.Fatalf("exit code is %s, want %s", got, args[0])
	}
}

func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cli.Main(context.Background(), args, strings.NewReader(""), &out, &errs, func(string) string { return "" })
	return code, out.String(), errs.String()
}

// TestHelp compares the help of every command with its golden file. Commands
// are found by walking the help itself, so a new one is covered at once.
func TestHelp(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var walk func(path []string)
	walk = func(path []string) {
		code, help, stderr := run(append(append([]string{}, path...), "--help")...)
		if code != 0 || stderr != "" {
			t.Fatalf("%v --help: exit code %d, %s", path, code, stderr)
		}
		name := strings.Join(append([]string{"pandastack"}, path...), "_") + ".golden"
		seen[name] = true
		golden(t, name, help)
		if len(path) > 0 && strings.Contains(help, "Usage:") && !strings.Contains(help, "Examples:") {
			t.Errorf("%v has no examples", path)
		}
		for _, sub := range subcommands(help) {
			walk(append(append([]string{}, path...), sub))
		}
	}
	walk(nil)
	_, help, _ := run("help", "exit-codes")
	golden(t, "pandastack_exit-codes.golden", help)
	seen["pandastack_exit-codes.golden"] = true

	files, err := filepath.Glob("testdata/help/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[filepath.Base(f)] {
			t.Errorf("%s is of no command", f)
		}
	}
}

// subcommands reads the names under "Available Commands:".
func subcommands(help string) []string {
	var out []string
	_, list, ok := strings.Cut(help, "Available Commands:\n")
	if !ok {
		return nil
	}
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 0 {
			break
		}
		if f[0] != "help" {
			out = append(out, f[0])
		}
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "help", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; run go test ./internal/cli -run TestHelp -update\n%s", name, got)
	}
}
