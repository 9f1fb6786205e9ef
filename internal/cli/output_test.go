package cli_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/cli"
)

// onTerminal runs the program with a terminal as standard output and gives what
// is on it.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	shown := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		_, _ = io.Copy(&all, master) // it ends with an error when the terminal is closed
		shown <- all.String()
	}()
	var errs bytes.Buffer
	if code := cli.Main(context.Background(), args, strings.NewReader(""), terminal, &errs, func(string) string { return "" }); code != 0 {
		t.Errorf("%v: exit code %d, %s", args, code, errs.String())
	}
	terminal.Close()
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// TestForms: a list is a table on a terminal, lines of fields in a pipe and the
// API's JSON when asked for; what the sandbox says controls none of them.
func TestForms(t *testing.T) {
	t.Parallel()
	url := listing(t, api.FileInfo{Name: "a\x1b[31m\tb", Type: "file", Mode: "-rw-r--r--", Owner: "user", Group: "user", Size: 5, Modified: time.Unix(0, 0)})
	args := []string{"--api", url, "--no-color", "sandbox", "fs", "ls", "x"}
	if got, want := onTerminal(t, args...), `MODE        OWNER  GROUP  SIZE  MODIFIED              NAME
-rw-r--r--  user   user   5     1970-01-01T00:00:00Z  a\x1b[31m b
`; got != want {
		t.Errorf("on a terminal:\n%s", got)
	}
	if _, got, _ := run(args...); got != "-rw-r--r--\tuser\tuser\t5\t1970-01-01T00:00:00Z\ta\\x1b[31m b\n" {
		t.Errorf("in a pipe: %q", got)
	}
	if _, got, _ := run(append(args, "-o", "json")...); !strings.Contains(got, `"name": "a\u001b[31m\tb"`) {
		t.Errorf("as JSON: %s", got)
	}
	if got := onTerminal(t, "--api", url, "sandbox", "fs", "read", "x", "f"); got != "owned" {
		t.Errorf("a file: %q", got)
	}
}

// TestAttachBrokenOff: a stream that ends before its process is no success.
func TestAttachBrokenOff(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: start\ndata: {\"type\":\"start\",\"pid\":7}\n\nevent: stdout\ndata: {\"type\":\"stdout\",\"data\":\"aGk=\"}\n\n")
	}))
	t.Cleanup(s.Close)
	code, stdout, stderr := run("--api", s.URL, "sandbox", "process", "attach", "x", "7")
	if code != 5 || stdout != "hi" || !strings.Contains(stderr, "before the process ended") {
		t.Errorf("exit code %d, %q, %s", code, stdout, stderr)
	}
}
