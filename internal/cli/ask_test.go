package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

// How many arguments a command takes is read from its help.
func TestArgsOf(t *testing.T) {
	t.Parallel()
	for use, want := range map[string][2]int{
		"x ID":                                 {1, 1},
		"x ID PATH [FILE] [flags]":             {2, 3},
		"x ID PATH... [flags]":                 {2, 9},
		"x ID [PATH...]":                       {1, 9},
		"x ID OWNER[:GROUP] PATH...":           {3, 9},
		"x ID [flags] -- COMMAND [ARG...]":     {2, 9},
		"x ID [REMOTE] [BRANCH] [flags]":       {1, 3},
		"x ID PATTERN REPLACEMENT [P] [flags]": {3, 4},
	} {
		check := argsOf(use)
		for n := range 10 {
			err := check(&cobra.Command{}, make([]string, n))
			if ok := n >= want[0] && n <= want[1]; ok != (err == nil) {
				t.Errorf("%s with %d arguments: %v", use, n, err)
			}
		}
	}
}

// Text of a sandbox that comes in pieces is as fit for a terminal as in one.
func TestPrintableWriter(t *testing.T) {
	t.Parallel()
	const text = "a\x1b[31mb\u2603c\u009b\n\xffd\te"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := &printableWriter{w: &out}
		for i := 0; i < len(text); i += size {
			if _, err := w.Write([]byte(text[i:min(len(text), i+size)])); err != nil {
				t.Fatal(err)
			}
		}
		if want := printable(text); out.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}

func TestSignalOf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]syscall.Signal{"INT": 2, "sigterm": 15, "SIGKILL": 9, "9": 9, "usr1": syscall.SIGUSR1} {
		if got, err := signalOf(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "-1", "65", "NOPE", "SIG"} {
		if got, err := signalOf(in); err == nil {
			t.Errorf("%q is %v", in, got)
		}
	}
}

// Credentials are for the server that the person named, and for none that the
// sandbox did.
func TestGitLogin(t *testing.T) {
	t.Parallel()
	env := map[string]string{envGitPassword: "secret", envGitUser: "ann"}
	with := call{app: &app{getenv: func(k string) string { return env[k] }, stdin: strings.NewReader("piped\n")}, cmd: &cobra.Command{}}
	without := call{app: &app{getenv: func(string) string { return "" }}, cmd: &cobra.Command{}}
	for name, c := range map[string]struct {
		login  gitLogin
		call   call
		remote string
		want   *api.GitAuth
		fails  bool
	}{
		"none":         {gitLogin{}, without, "https://example.com/x", nil, false},
		"clone":        {gitLogin{}, with, "https://example.com:8443/x", &api.GitAuth{Username: "ann", Password: "secret", Host: "example.com:8443"}, false},
		"no URL":       {gitLogin{}, with, "git@example.com:x", nil, false},
		"push":         {gitLogin{host: "example.com"}, with, "", &api.GitAuth{Username: "ann", Password: "secret", Host: "example.com"}, false},
		"push to what": {gitLogin{}, with, "", nil, true},
		"pull without": {gitLogin{}, without, "", nil, false},
		"piped":        {gitLogin{passwordFile: "-", username: "bob", host: "h"}, with, "", &api.GitAuth{Username: "bob", Password: "piped", Host: "h"}, false},
		"no file":      {gitLogin{passwordFile: "/nonexistent"}, without, "https://example.com/x", nil, true},
	} {
		got, err := c.login.auth(c.call, c.remote)
		if (err != nil) != c.fails || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is told: %v", name, err)
		}
	}
}
