package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	headerProcess = "X-Process-Id"  // of the answer to a terminal's handshake
	detachWait    = 2 * time.Second // for the last input to be taken when a client leaves
	maxTerminal   = 65535           // rows and columns
)

type terminalInput struct {
	SandboxPath
	Rows     int    `query:"rows" minimum:"0" maximum:"65535" doc:"Default 24; an attached terminal keeps its size"`
	Cols     int    `query:"cols" minimum:"0" maximum:"65535" doc:"Default 80; an attached terminal keeps its size"`
	Cmd      string `query:"cmd" maxLength:"65536" doc:"Shell line to run; default is the user's shell"`
	Cwd      string `query:"cwd" maxLength:"4096" doc:"Default: the user's home directory"`
	User     string `query:"user" maxLength:"64" doc:"Default: user"`
	Term     string `query:"term" maxLength:"64" pattern:"^[A-Za-z0-9._+-]*$" doc:"Kind of terminal; default xterm-256color"`
	PID      int    `query:"pid" minimum:"0" doc:"Attach to this process"`
	Tag      string `query:"tag" maxLength:"64" doc:"Attach to the process with this tag, or start it"`
	Messages bool   `query:"messages" default:"true" doc:"Whether the server sends text messages"`
}

// terminal is a process in a terminal and the connection it is shown on. The
// process goes on when the connection ends.
type terminal struct {
	conn     *websocket.Conn
	proc     *guest.Process
	client   *guest.Client
	started  bool // by this call
	messages bool
	touch    func()
	input    *io.PipeWriter
}

func (a *API) terminal(_ context.Context, in *terminalInput) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		if !a.upgradeWanted(w, r) {
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		start := time.Now()
		// The process comes before the handshake, so that what is wrong is an
		// error answer rather than a connection that closes.
		t, err := a.openTerminal(ctx, in)
		if err != nil {
			a.metrics.executed("terminal", start, err)
			a.fail(w, r, err)
			return
		}
		defer t.proc.Close()
		w.Header().Set(headerProcess, strconv.Itoa(t.proc.PID()))
		t.conn, err = websocket.Accept(w, r, &websocket.AcceptOptions{
			InsecureSkipVerify: true, // as for exec/ws
			Subprotocols:       []string{"pds-pty", bearerProtocol + protocolKey(r)},
		})
		if err != nil {
			requestOf(ctx).err = err // the answer has been sent
			if t.started {
				(&socket{proc: t.proc, client: t.client}).kill(ctx)
			}
			return
		}
		err = t.run(ctx, cancel, a.KeepAlive)
		a.metrics.executed("terminal", start, err)
	}), nil
}

// openTerminal attaches to the process that the request names, or starts one.
func (a *API) openTerminal(ctx context.Context, in *terminalInput) (*terminal, error) {
	t := &terminal{messages: in.Messages, touch: a.toucher(in.ID)}
	size := guest.Size{Rows: uint16(in.Rows), Cols: uint16(in.Cols)}
	if in.PID != 0 || in.Tag != "" {
		found, err := a.attachTerminal(ctx, in, t, size)
		if found || err != nil {
			return t, err
		}
	}
	if size.Rows == 0 {
		size.Rows = 24
	}
	if size.Cols == 0 {
		size.Cols = 80
	}
	req := api.Exec{Cwd: in.Cwd, User: in.User, Tag: in.Tag}
	if in.Cmd != "" {
		req.Cmd, _ = json.Marshal(in.Cmd) // a string always encodes
	}
	if in.Term != "" {
		req.Env = map[string]string{"TERM": in.Term}
	}
	var err error
	t.started = true
	t.proc, t.client, err = a.Control.StartTerminal(ctx, who(ctx), in.ID, req, size)
	return t, err
}

// attachTerminal attaches to a terminal by number or tag, and reports whether
// there is one. Only a number must be there.
func (a *API) attachTerminal(ctx context.Context, in *terminalInput, t *terminal, size guest.Size) (found bool, err error) {
	if t.client, err = a.Control.Guest(ctx, who(ctx), in.ID); err != nil {
		return false, err
	}
	name := in.Tag
	if in.PID != 0 {
		name = strconv.Itoa(in.PID)
	}
	p, err := t.client.Lookup(ctx, name)
	if in.PID == 0 && (api.CodeOf(err) == api.CodeProcessNotFound || err == nil && p.EndedAt != nil) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !p.Terminal {
		return false, api.Errorf(api.CodeProcessInvalid, "process %d does not run in a terminal", p.PID).
			WithHint("Follow its output at processes/{pid}.")
	}
	if size.Rows != 0 && size.Cols != 0 && p.EndedAt == nil {
		if err := t.client.Resize(ctx, p.PID, size); err != nil && api.CodeOf(err) != api.CodeProcessNotFound {
			return false, err
		}
	}
	t.proc, err = t.client.AttachReplay(ctx, p.PID)
	return true, err
}

// run shows the terminal until the process has ended or the client has left.
func (t *terminal) run(ctx context.Context, cancel context.CancelFunc, keepAlive time.Duration) error {
	defer t.conn.CloseNow()
	t.conn.SetReadLimit(maxSocketMessage)
	in, input := io.Pipe()
	t.input = input
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_, err := t.client.Feed(ctx, t.proc.PID(), in, false)
		_ = in.CloseWithError(errors.Join(io.ErrClosedPipe, err)) // a pipe closes always
	}()
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		t.readInput(ctx)
		t.input.Close()
		select { // what was typed last still counts
		case <-fed:
		case <-time.After(detachWait):
		case <-ctx.Done():
		}
		cancel() // the client has left: ends the output too
	}()
	pings := make(chan struct{})
	go func() { defer close(pings); t.ping(ctx, cancel, keepAlive) }()

	err := t.writeOutput(ctx)
	if ctx.Err() != nil {
		err = nil // nobody is there to be told
	}
	_ = t.conn.CloseNow()
	cancel()
	t.input.Close()
	<-reader
	<-fed
	<-pings
	return err
}

// writeOutput sends output until the process has ended, which it says last.
func (t *terminal) writeOutput(ctx context.Context) error {
	for {
		e, err := t.proc.Recv()
		if err != nil {
			return t.fail(ctx, err)
		}
		if e.Exit != nil {
			t.say(ctx, api.TerminalMessage{Type: "exit", Code: &e.Exit.Code, Signal: e.Exit.Signal})
			_ = t.conn.Close(websocket.StatusNormalClosure, "exit "+strconv.Itoa(e.Exit.Code)) // the client may be gone
			return nil
		}
		if err := t.conn.Write(ctx, websocket.MessageBinary, e.PTY); err != nil {
			return err
		}
		t.touch()
	}
}

// fail says why there is no more output.
func (t *terminal) fail(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		err = api.Errorf(api.CodeSandboxDied, "the sandbox ended before its process did")
	}
	e := newEnvelope(ctx, err)
	t.say(ctx, api.TerminalMessage{Type: "error", Error: e.Failure})
	_ = t.conn.Close(websocket.StatusPolicyViolation, string(e.Failure.Code)) // as above
	return err
}

// say sends a text message to a client that wants such.
func (t *terminal) say(ctx context.Context, m api.TerminalMessage) {
	if !t.messages {
		return
	}
	if data, err := json.Marshal(m); err == nil {
		_ = t.conn.Write(ctx, websocket.MessageText, data) // the close that follows says it as well
	}
}

// readInput passes on what the client types until it leaves. A program that does
// not read holds it up.
func (t *terminal) readInput(ctx context.Context) {
	for {
		kind, data, err := t.conn.Read(ctx)
		if err != nil {
			return
		}
		t.touch()
		if m, ok := parseTerminalMessage(data); ok && kind == websocket.MessageText {
			if m.Rows > 0 && m.Cols > 0 {
				size := guest.Size{Rows: uint16(m.Rows), Cols: uint16(m.Cols)}
				_ = t.client.Resize(ctx, t.proc.PID(), size) // a process that has just ended has no size
			}
			continue
		}
		if _, err := t.input.Write(data); err != nil && ctx.Err() != nil {
			return
		}
	}
}

// parseTerminalMessage reads a text message for the server. Terminals of web pages
// send what is typed as text too, so that everything else is input.
func parseTerminalMessage(data []byte) (api.TerminalMessage, bool) {
	var m api.TerminalMessage
	if len(data) < 2 || data[0] != '{' || json.Unmarshal(data, &m) != nil || m.Type != "resize" {
		return m, false
	}
	return m, m.Rows >= 0 && m.Rows <= maxTerminal && m.Cols >= 0 && m.Cols <= maxTerminal
}

// ping keeps an idle connection from being cut on its way, and ends one that is
// gone. A client that answers late is not: its input may be held up.
func (t *terminal) ping(ctx context.Context, cancel context.CancelFunc, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wait, done := context.WithTimeout(ctx, every)
		err := t.conn.Ping(wait)
		done()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			cancel()
			return
		}
	}
}

func docTerminal(op *huma.Operation) {
	op.Description = "A terminal over a WebSocket. Binary messages are its bytes, both ways; a text message of the client is a TerminalMessage of type resize, or else bytes too. " +
		"The server sends a TerminalMessage of type exit or error before it closes, unless `messages` is false. " +
		"The process goes on when the connection ends: `pid` or `tag` attach to it again, beginning with its last 256 KiB of output. Its number is in the header " + headerProcess + ". " +
		"Browsers may send the key as subprotocol `bearer.KEY` beside `pds-pty`."
	op.DefaultStatus = http.StatusSwitchingProtocols
	content(op, "101", "application/json", ref("TerminalMessage"), "Switching to WebSocket")
	delete(op.Responses, "200")
}
