//go:build linux

package image

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestCommandFailureHasTheEndOfItsOutput(t *testing.T) {
	t.Parallel()
	var lines int
	err := command{name: "sh", args: []string{"-c", `echo 'dpkg: error: the cause'; i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done; printf 'a\rb\r\n\n\377 no end' >&2; exit 3`}, line: func(string) { lines++ }}.run(t.Context())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("%v", err)
	}
	log := strings.Split(tailOf(err), "\n")
	if len(log) != tailLines+1 || log[0] != "dpkg: error: the cause" || log[len(log)-1] != "? no end" || log[len(log)-2] != "b" {
		t.Errorf("log: %q", log)
	}
	if lines != 504 {
		t.Errorf("%d lines", lines)
	}
}

func TestCommandSeesNoSecrets(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "x")
	t.Setenv("http_proxy", "http://proxy.example:1")
	var out []string
	if err := (command{name: "env", line: func(s string) { out = append(out, s) }}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(out, "\n")
	if strings.Contains(all, "SECRET") || !strings.Contains(all, "http_proxy=http://proxy.example:1") {
		t.Errorf("environment: %s", all)
	}
}

func TestStepHookQuotes(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(`a 'b' "$c" \d`+"\n`e`")).Output()
	if err != nil || string(out) != `a 'b' "$c" \d`+"\n`e`" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestMissingToolsAreNamed(t *testing.T) {
	t.Parallel()
	err := require(needErofs, Missing{"no-such-tool", "some-package", "x"}, Missing{"/no/such/file", "other-package", "x"})
	if len(Requirements(t.Context())) == 0 {
		wantCode(t, err, api.CodeHostSetup, "needs no-such-tool, /no/such/file")
	}
	if hint := api.AsError(err).Hint; !strings.Contains(hint, "some-package other-package") {
		t.Errorf("hint: %s", hint)
	}
}

func TestFailedBuildHasItsLog(t *testing.T) {
	needRoot(t)
	if m := Requirements(t.Context()); len(m) > 0 {
		t.Skipf("NOT TESTED: %s is not installed", m[0].Package)
	}
	t.Parallel()
	s := testStore(t, WithMirror("http://127.0.0.1:1/debian"))
	_, err := s.FromRecipe(t.Context(), Recipe{Name: "x", Debian: &Debian{Suite: "trixie"}}, nil)
	wantCode(t, err, api.CodeTemplateBuild, `building template "x" failed`)
	if log, _ := api.AsError(err).Details["log"].(string); !strings.Contains(log, "127.0.0.1") {
		t.Errorf("log: %q", log)
	}
	noMounts(t, s.dir)
	_, err = s.FromRecipe(t.Context(), Recipe{Name: "x"}, nil)
	wantCode(t, err, api.CodeTemplateInvalid, "debian")
	if _, err := s.Built(Recipe{Name: "x", Debian: &Debian{Suite: "trixie"}}); api.CodeOf(err) != api.CodeTemplateNotFound {
		t.Errorf("%v", err)
	}
}
