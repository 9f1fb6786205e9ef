package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	maxSocketMessage = 1 << 20          // bytes of one message from a client
	startWait        = 30 * time.Second // for the client's first message
	killWait         = 5 * time.Second  // for the guest to end a command whose client has left
)

func (a *API) execSocket(_ context.Context, in *SandboxPath) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		if !a.socketWanted(w, r, in.ID) {
			return
		}
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			// Any origin may connect: what admits a caller is a key that the
			// page itself holds, never a cookie that a browser adds.
			InsecureSkipVerify: true,
			// A browser drops the connection unless one of the protocols it
			// offered is taken.
			Subprotocols: []string{"pds-exec", "pds-pty", bearerProtocol + protocolKey(r)},
		})
		if err != nil {
			requestOf(r.Context()).err = err // the answer has been sent
			return
		}
		start := time.Now()
		err = a.runSocket(r.Context(), conn, in.ID)
		a.metrics.executed("websocket", start, err)
	}), nil
}

// socketWanted reports whether a request may become a WebSocket; if not it has been
// answered. The sandbox is looked up first, so that a wrong id is an error answer
// rather than a connection that closes.
func (a *API) socketWanted(w http.ResponseWriter, r *http.Request, id string) bool {
	if _, err := a.Control.Get(r.Context(), who(r.Context()), id); err != nil {
		a.fail(w, r, err)
		return false
	}
	return a.upgradeWanted(w, r)
}

// upgradeWanted reports whether a request asks for a WebSocket; if not it has been
// answered.
func (a *API) upgradeWanted(w http.ResponseWriter, r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		a.fail(w, r, &statusError{api.Errorf(api.CodeInvalidRequest, "this endpoint speaks WebSocket only"), http.StatusUpgradeRequired})
		return false
	}
	return true
}

// runSocket runs one command for one connection. The command does not outlive
// the connection unless it was started in the background or by another call.
func (a *API) runSocket(ctx context.Context, conn *websocket.Conn, id string) error {
	defer conn.CloseNow()
	conn.SetReadLimit(maxSocketMessage)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	first, err := readStart(ctx, conn)
	if err != nil {
		return a.closeSocket(ctx, conn, err)
	}
	proc, client, err := a.beginSocket(ctx, id, first)
	if err != nil {
		if name, ok := missingProgram(first.Exec, err); ok {
			err = sendMissing(ctx, conn, name)
		}
		return a.closeSocket(ctx, conn, err)
	}
	s := &socket{conn: conn, proc: proc, client: client, started: time.Now()}
	reader := make(chan error, 1)
	go func() {
		err := s.readInput(ctx)
		cancel() // the client has left: ends the output too
		reader <- err
	}()
	pings := make(chan struct{})
	go func() { defer close(pings); s.ping(ctx, a.KeepAlive) }()

	err = s.writeOutput(ctx)
	exited := err == nil
	left := ctx.Err() != nil
	if !exited && first.Type == "start" && !first.Exec.Background {
		s.kill(ctx)
	}
	proc.Close() // the process has ended or goes on by itself
	if left {
		err = nil // nobody is there to be told
		conn.CloseNow()
	} else {
		err = a.closeSocket(ctx, conn, err)
	}
	cancel()
	<-reader
	<-pings
	return err
}

// beginSocket starts the command of the first message, or attaches to the process
// it names.
func (a *API) beginSocket(ctx context.Context, id string, first *api.ExecInput) (*guest.Process, *guest.Client, error) {
	if first.Type == "start" {
		return a.Control.StartCommand(ctx, who(ctx), id, *first.Exec)
	}
	client, err := a.Control.Guest(ctx, who(ctx), id)
	if err != nil {
		return nil, nil, err
	}
	proc, err := client.AttachReplay(ctx, first.PID)
	return proc, client, err
}

// result says how the command ended, without its output, which has been sent.
func (s *socket) result(e *guest.Exit) *api.ExecResult {
	return &api.ExecResult{
		ExitCode:   e.Code,
		Signal:     e.Signal,
		PID:        s.proc.PID(),
		DurationMS: float64(time.Since(s.started).Microseconds()) / 1000,
	}
}

// missingProgram gives the name of a program that could not be run because it
// does not exist. That is the end of the command, not of the call: the other
// exec calls answer it in a shell's way, with exit code 127.
func missingProgram(req *api.Exec, err error) (string, bool) {
	var e *api.Error
	if req == nil || !errors.As(err, &e) || e.Code != api.CodeProcessInvalid || e.Details["errno"] != "ENOENT" {
		return "", false
	}
	var name string
	var argv []string
	if json.Unmarshal(req.Cmd, &name) != nil && json.Unmarshal(req.Cmd, &argv) == nil && len(argv) > 0 {
		name = argv[0]
	}
	return name, true
}

func sendMissing(ctx context.Context, conn *websocket.Conn, name string) error {
	s := &socket{conn: conn}
	return errors.Join(
		s.send(ctx, api.ExecEvent{Type: "start"}),
		s.send(ctx, api.ExecEvent{Type: "stderr", Data: []byte(name + ": not found\n")}),
		s.send(ctx, api.ExecEvent{Type: "exit", Result: &api.ExecResult{ExitCode: 127}}),
	)
}

// readStart waits for the client's first message.
func readStart(ctx context.Context, conn *websocket.Conn) (*api.ExecInput, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	kind, data, err := conn.Read(ctx)
	if err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, err, "no start message came within %s", startWait)
	}
	if kind != websocket.MessageText {
		return nil, api.Errorf(api.CodeInvalidRequest, "the first message must be a start message")
	}
	in, err := decodeInput(data)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Type == "start" && in.Exec != nil:
	case in.Type == "attach" && in.PID > 0:
		in.Exec = nil
	default:
		return nil, api.Errorf(api.CodeInvalidRequest, "the first message must be of type start and have exec, or of type attach and have pid").With("field", "type")
	}
	return &in, nil
}

// decodeInput reads a text message as strictly as a request's body.
func decodeInput(data []byte) (api.ExecInput, error) {
	var in api.ExecInput
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return in, api.Errorf(api.CodeUnknownField, "unknown field %s", clip(field)).With("field", strings.Trim(field, `"`))
		}
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return in, api.Errorf(api.CodeInvalidRequest, "%s: expected another type than %s", clip(wrong.Field), wrong.Value).With("field", wrong.Field)
		}
		return in, api.Wrap(api.CodeInvalidRequest, err, "the message is not valid JSON")
	}
	return in, nil
}

// closeSocket ends a connection in order: with an error event where something
// failed.
func (a *API) closeSocket(ctx context.Context, conn *websocket.Conn, err error) error {
	if err == nil {
		return conn.Close(websocket.StatusNormalClosure, "")
	}
	e := newEnvelope(ctx, err)
	if data, merr := json.Marshal(api.ExecEvent{Type: "error", Error: e.Failure}); merr == nil {
		_ = conn.Write(ctx, websocket.MessageText, data) // the close that follows says it as well
	}
	_ = conn.Close(websocket.StatusPolicyViolation, string(e.Failure.Code))
	return err
}

// socket is a running command and the connection it is shown on.
type socket struct {
	conn    *websocket.Conn
	proc    *guest.Process
	client  *guest.Client
	started time.Time
}

// writeOutput sends events until the command has ended, which is nil.
func (s *socket) writeOutput(ctx context.Context) error {
	if err := s.send(ctx, api.ExecEvent{Type: "start", PID: s.proc.PID(), Skipped: s.proc.Skipped()}); err != nil {
		return err
	}
	for {
		e, err := s.proc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.forward(ctx, e); err != nil {
			return err
		}
		if e.Exit != nil {
			return nil
		}
	}
}

func (s *socket) forward(ctx context.Context, e guest.Event) error {
	out := []api.ExecEvent{{Type: "stdout", Data: e.Stdout}, {Type: "stdout", Data: e.PTY}, {Type: "stderr", Data: e.Stderr}}
	for _, ev := range out {
		if len(ev.Data) == 0 {
			continue
		}
		if err := s.send(ctx, ev); err != nil {
			return err
		}
	}
	if e.Exit == nil {
		return nil
	}
	return s.send(ctx, api.ExecEvent{Type: "exit", PID: s.proc.PID(), Result: s.result(e.Exit)})
}

func (s *socket) send(ctx context.Context, e api.ExecEvent) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.conn.Write(ctx, websocket.MessageText, data)
}

// readInput passes the client's messages on until the client leaves.
func (s *socket) readInput(ctx context.Context) error {
	for {
		kind, data, err := s.conn.Read(ctx)
		if err != nil {
			return err
		}
		in := api.ExecInput{Type: "stdin", Data: data}
		if kind == websocket.MessageText {
			if in, err = decodeInput(data); err == nil {
				err = s.apply(ctx, in)
			}
		} else {
			err = s.apply(ctx, in)
		}
		if err != nil && ctx.Err() == nil {
			// One message that cannot be served does not end the command;
			// a command that has just exited is the usual cause.
			e := newEnvelope(ctx, err)
			if err := s.send(ctx, api.ExecEvent{Type: "error", Error: e.Failure}); err != nil {
				return err
			}
		}
	}
}

func (s *socket) apply(ctx context.Context, in api.ExecInput) error {
	pid := s.proc.PID()
	switch in.Type {
	case "stdin":
		return s.client.SendInput(ctx, pid, in.Data)
	case "close_stdin":
		return s.client.CloseStdin(ctx, pid)
	case "signal":
		sig, err := signalOf(in.Signal)
		if err != nil {
			return err
		}
		return s.client.Signal(ctx, pid, sig)
	}
	return api.Errorf(api.CodeInvalidRequest, "type: expected stdin, close_stdin or signal").With("field", "type")
}

// kill ends a command whose client has left.
func (s *socket) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	_ = s.client.KillTree(ctx, s.proc.PID()) // it may have ended by itself meanwhile
}

// ping keeps an idle connection from being cut on its way. It does not decide
// that a client is gone: one that reads slowly, or whose input a program does
// not read, answers late.
func (s *socket) ping(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.conn.Ping(ctx) != nil {
			return // the reader sees the closed connection
		}
	}
}
