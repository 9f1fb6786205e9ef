package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// conversation is the server's side of exec/ws after start.
type conversation struct {
	t    *testing.T
	ctx  context.Context
	conn *websocket.Conn
}

func (c conversation) say(ev api.ExecEvent) { _ = wsjson.Write(c.ctx, c.conn, ev) }

func (c conversation) exit(code int) {
	c.say(api.ExecEvent{Type: "exit", Result: &api.ExecResult{ExitCode: code}})
}

// hear gives the next message of the client, binary ones as stdin.
func (c conversation) hear() api.ExecInput {
	kind, raw, err := c.conn.Read(c.ctx)
	if err != nil {
		return api.ExecInput{Type: "gone"}
	}
	if kind == websocket.MessageBinary {
		return api.ExecInput{Type: "stdin", Data: raw}
	}
	var in api.ExecInput
	if err := json.Unmarshal(raw, &in); err != nil {
		c.t.Errorf("client sent %q", raw)
	}
	return in
}

// serveExec answers exec/ws.
func serveExec(t *testing.T, talk func(conversation, *api.Exec)) *client.Sandbox {
	t.Helper()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/sandboxes/x/exec/ws" {
			t.Errorf("path is %s", r.URL.Path)
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		cv := conversation{t, r.Context(), conn}
		in := cv.hear()
		if in.Type != "start" || in.Exec == nil {
			t.Errorf("first message is %+v", in)
			return
		}
		talk(cv, in.Exec)
		_ = conn.Close(websocket.StatusNormalClosure, "")
	})
	return c.Sandboxes.Handle("x")
}

func start(c conversation) { c.say(api.ExecEvent{Type: "start", PID: 42}) }

func TestCommandStreamsAndExits(t *testing.T) {
	t.Parallel()
	sb := serveExec(t, func(c conversation, in *api.Exec) {
		if string(in.Cmd) != `["cat","-"]` || in.Env["A"] != "b" || in.Cwd != "/tmp" || in.User != "root" || in.TimeoutSeconds != 1.5 {
			t.Errorf("exec is %+v", in)
		}
		start(c)
		for {
			m := c.hear()
			if m.Type != "stdin" {
				if m.Type != "close_stdin" {
					t.Errorf("message is %+v", m)
				}
				break
			}
			c.say(api.ExecEvent{Type: "stdout", Data: m.Data})
		}
		c.say(api.ExecEvent{Type: "stderr", Data: []byte("bye")})
		c.exit(3)
	})
	input := strings.Repeat("\x00\xffabc", 100_000)
	cmd := sb.Command(t.Context(), "cat", "-")
	cmd.Env, cmd.Dir, cmd.User, cmd.Timeout = map[string]string{"A": "b"}, "/tmp", "root", 1500*time.Millisecond
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	var exit *client.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(exit.Stderr) != "bye" {
		t.Fatalf("error is %v", err)
	}
	if string(out) != input {
		t.Errorf("%d bytes came back of %d", len(out), len(input))
	}
	if cmd.Process.PID != 42 || cmd.Result.ExitCode != 3 {
		t.Errorf("process %+v, result %+v", cmd.Process, cmd.Result)
	}
}

func TestCommandErrorsBeforeAndAfterStart(t *testing.T) {
	t.Parallel()
	bad := api.Errorf(api.CodeProcessInvalid, "no such user")
	sb := serveExec(t, func(c conversation, _ *api.Exec) { c.say(api.ExecEvent{Type: "error", Error: bad}) })
	wantCode(t, sb.Command(t.Context(), "true").Run(), api.CodeProcessInvalid)

	// Input that came too late is not what went wrong.
	sb = serveExec(t, func(c conversation, _ *api.Exec) {
		start(c)
		c.say(api.ExecEvent{Type: "error", Error: bad})
		c.exit(0)
	})
	if err := sb.Command(t.Context(), "true").Run(); err != nil {
		t.Error(err)
	}

	sb = serveExec(t, func(c conversation, _ *api.Exec) {
		start(c)
		c.say(api.ExecEvent{Type: "error", Error: api.Errorf(api.CodeSandboxDied, "gone")})
	})
	wantCode(t, sb.Command(t.Context(), "true").Run(), api.CodeSandboxDied)

	sb = serveExec(t, func(c conversation, _ *api.Exec) { start(c); c.conn.CloseNow() })
	wantCode(t, sb.Command(t.Context(), "true").Run(), api.CodeServerUnreachable)
}

func TestCommandTimesOut(t *testing.T) {
	t.Parallel()
	sb := serveExec(t, func(c conversation, _ *api.Exec) {
		start(c)
		c.say(api.ExecEvent{Type: "error", Error: api.Errorf(api.CodeTimeout, "too long")})
	})
	cmd := sb.Command(t.Context(), "sleep", "9")
	cmd.Timeout = time.Second
	var exit *client.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 124 || !exit.Result.TimedOut {
		t.Errorf("error is %v", err)
	}
}

func TestCommandRefusedHandshake(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 1000)
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 404, api.Envelope{Error: api.Errorf(api.CodeSandboxNotFound, "%s", long)})
	})
	e := wantCode(t, c.Sandboxes.Handle("x").Command(t.Context(), "true").Run(), api.CodeSandboxNotFound)
	if e.Message != long {
		t.Errorf("message was cut to %d bytes", len(e.Message))
	}
}

func TestCommandIsKilledWithItsContext(t *testing.T) {
	t.Parallel()
	sb := serveExec(t, func(c conversation, _ *api.Exec) {
		start(c)
		for {
			if m := c.hear(); m.Type == "signal" {
				if m.Signal != "SIGKILL" {
					t.Errorf("signal is %s", m.Signal)
				}
				c.exit(137)
				return
			} else if m.Type == "gone" {
				t.Error("the connection ended before the signal")
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cmd := sb.ShellCommand(ctx, "sleep 1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cancel()
	err := cmd.Wait()
	if wantCode(t, err, api.CodeCanceled); !errors.Is(err, context.Canceled) {
		t.Error("not context.Canceled")
	}
}

func TestCommandPipes(t *testing.T) {
	t.Parallel()
	sb := serveExec(t, func(c conversation, _ *api.Exec) {
		start(c)
		for m := c.hear(); m.Type == "stdin"; m = c.hear() {
			c.say(api.ExecEvent{Type: "stdout", Data: bytes.ToUpper(m.Data)})
		}
		c.exit(0)
	})
	cmd := sb.Command(t.Context(), "upper")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(in, "abc"); in.Close() }()
	got, err := io.ReadAll(out)
	if err != nil || string(got) != "ABC" {
		t.Errorf("%q, %v", got, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestCommandWriterFails(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	sb := serveExec(t, func(c conversation, _ *api.Exec) {
		start(c)
		c.say(api.ExecEvent{Type: "stdout", Data: []byte("x")})
		for c.hear().Type != "gone" {
		}
		close(gone)
	})
	cmd := sb.Command(t.Context(), "yes")
	cmd.Stdout = brokenWriter{}
	if err := cmd.Run(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error is %v", err)
	}
	<-gone
}
