package client

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// TerminalOptions say what runs in a terminal, or which one to attach to. The
// zero value is the user's shell in 24 rows of 80 columns.
type TerminalOptions struct {
	Rows, Cols int
	Line       string // shell line to run instead of a shell
	Dir        string // default: the user's home directory
	User       string // default: the sandbox's default user
	Term       string // kind of terminal; default xterm-256color

	PID int    // attach to this process
	Tag string // attach to the process with this tag, or start it
}

// Terminal is a process in a terminal of the sandbox. Read gives what it shows,
// for one goroutine, and io.EOF when it has ended; Write is its keyboard. Closing
// it detaches: the process goes on, and PID attaches to it again, beginning with
// the last of what it has shown.
type Terminal struct {
	PID int

	c      *Client
	conn   *websocket.Conn
	ctx    context.Context // of the connection
	cancel context.CancelFunc
	rest   []byte // of the last message
	once   sync.Once
	result *api.ExecResult // once Read has given io.EOF
	err    error           // of Read
}

// Terminal starts a process in a terminal, or attaches to one.
func (s *Sandbox) Terminal(ctx context.Context, o TerminalOptions) (*Terminal, error) {
	q := url.Values{}
	for name, v := range map[string]string{"cmd": o.Line, "cwd": o.Dir, "user": o.User, "term": o.Term, "tag": o.Tag} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for name, n := range map[string]int{"rows": o.Rows, "cols": o.Cols, "pid": o.PID} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	conn, header, err := s.c.dialSocket(ctx, s.path("exec", "pty"), q)
	if err != nil {
		return nil, err
	}
	t := &Terminal{c: s.c, conn: conn}
	t.PID, _ = strconv.Atoi(header.Get("X-Process-Id"))
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return t, nil
}

// Read implements io.Reader.
func (t *Terminal) Read(p []byte) (int, error) {
	for len(t.rest) == 0 && t.err == nil {
		kind, data, err := t.conn.Read(t.ctx)
		switch {
		case err != nil:
			t.err = t.broken(err)
		case kind == websocket.MessageBinary:
			t.rest = data
		default:
			t.err = t.message(data)
		}
	}
	if len(t.rest) == 0 {
		return 0, t.err
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// message takes in a text message; it gives the error that ends the output.
func (t *Terminal) message(data []byte) error {
	var m api.TerminalMessage
	if json.Unmarshal(data, &m) != nil {
		return api.Errorf(api.CodeNotAServer, "the server sent a message that is not what this version of the client knows")
	}
	switch {
	case m.Type == "exit" && m.Code != nil:
		t.result = &api.ExecResult{ExitCode: *m.Code, Signal: m.Signal, PID: t.PID}
		return io.EOF
	case m.Type == "error" && m.Error != nil:
		return m.Error
	}
	return nil
}

// broken is the error of a connection that ended before the process.
func (t *Terminal) broken(err error) error {
	if websocket.CloseStatus(err) != -1 {
		return api.Wrap(api.CodeServerUnreachable, err, "the server closed the connection to the terminal").
			WithHint("The process may still run; attach to it again by its number.")
	}
	return t.c.transportError(t.ctx, err)
}

// Write types.
func (t *Terminal) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), stdinChunk)
		if err := t.conn.Write(t.ctx, websocket.MessageBinary, rest[:n]); err != nil {
			return len(p) - len(rest), t.c.transportError(t.ctx, err)
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// Resize changes the size of the terminal.
func (t *Terminal) Resize(rows, cols int) error {
	raw, err := json.Marshal(api.TerminalMessage{Type: "resize", Rows: rows, Cols: cols})
	if err != nil {
		return err
	}
	if err := t.conn.Write(t.ctx, websocket.MessageText, raw); err != nil {
		return t.c.transportError(t.ctx, err)
	}
	return nil
}

// Result is how the process ended, once Read has given io.EOF; nil before.
func (t *Terminal) Result() *api.ExecResult { return t.result }

// Close detaches. What was typed before is delivered.
func (t *Terminal) Close() error {
	t.once.Do(func() {
		_ = t.conn.Close(websocket.StatusNormalClosure, "") // the server may be gone
		t.cancel()
	})
	return nil
}
