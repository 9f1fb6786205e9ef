package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

const (
	socketMessageLimit = 4 << 20         // bytes of one message from the server
	stdinChunk         = 32 << 10        // bytes of standard input a message
	defaultWaitDelay   = 5 * time.Second // from cancelling to cutting the connection
	exitTimedOut       = 124             // exit code of a command that its timeout ended
)

// run is a command under way: its WebSocket and the goroutines on it.
type run struct {
	c    *Client
	conn *websocket.Conn

	// ctx lasts as long as the connection. It is not the caller's: that one
	// asks for the command's end, and the answer must still come through.
	ctx    context.Context
	cancel context.CancelFunc

	read  chan struct{} // closed when the reader has ended
	watch chan struct{} // closed when the watcher has ended

	// Set by the reader before read is closed.
	result *api.ExecResult
	err    error
	// cancelled is set by the watcher before watch is closed.
	cancelled error
}

// Start starts the command and returns once it runs in the sandbox
// (process.invalid, sandbox.invalid_state and others if it does not).
func (c *Cmd) Start() error {
	if c.Process != nil || c.run != nil {
		return errors.New("client: the command was already started")
	}
	if err := c.start(); err != nil {
		c.closePipes()
		return err
	}
	return nil
}

func (c *Cmd) start() error {
	in := api.Exec{Env: c.Env, Cwd: c.Dir, User: c.User, TimeoutSeconds: c.Timeout.Seconds()}
	switch {
	case c.Line != "":
		in.Cmd = Line(c.Line)
	case len(c.Args) > 0:
		in.Cmd = Argv(c.Args[0], c.Args[1:]...)
	default:
		return api.Errorf(api.CodeInvalidRequest, "there is no command to run")
	}
	r, err := c.sandbox.c.dialExec(c.ctx, c.sandbox.path("exec", "ws"))
	if err != nil {
		return err
	}
	c.run = r
	pid, err := r.begin(c.ctx, in)
	if err != nil {
		r.close()
		return err
	}
	c.Process = &Process{PID: pid, run: r}
	go func() {
		defer close(r.read)
		defer c.closePipes() // readers see the end without Wait
		r.result, r.err = r.receive(c.Stdout, c.Stderr)
		if c.Timeout > 0 && api.CodeOf(r.err) == api.CodeTimeout {
			// The server's way of saying that it ended the command.
			r.result, r.err = &api.ExecResult{ExitCode: exitTimedOut, TimedOut: true, PID: pid}, nil
		}
	}()
	go func() {
		defer close(r.watch)
		r.cancelled = r.watchCancel(c)
	}()
	// The copier of standard input can hang in the caller's Read, so nobody
	// waits for it; it ends with that Read.
	go r.feed(c.Stdin)
	return nil
}

// Wait waits for the command to end and all its output to be written. It gives
// nil for status 0, an *ExitError for others, the context's error if that ended
// it, or what went wrong.
func (c *Cmd) Wait() error {
	if c.Process == nil {
		return errors.New("client: the command was not started")
	}
	r := c.run
	<-r.read
	r.cancel()
	<-r.watch
	r.close()
	c.Result = r.result
	switch {
	case r.cancelled != nil:
		return r.cancelled
	case r.err != nil:
		return r.err
	case r.result.ExitCode != 0 || r.result.TimedOut:
		return &ExitError{Result: *r.result}
	}
	return nil
}

func (c *Cmd) closePipes() {
	for _, p := range c.closers {
		p.Close()
	}
}

// dialSocket opens a WebSocket. Only failures to connect are tried again.
func (c *Client) dialSocket(ctx context.Context, path []string, query url.Values) (*websocket.Conn, http.Header, error) {
	if err := checkPath(path); err != nil {
		return nil, nil, err
	}
	for try := 0; ; try++ {
		refusal := &refusal{next: c.http.Transport}
		hc := *c.http
		hc.Transport = refusal
		conn, resp, err := websocket.Dial(ctx, c.endpoint(path, query).String(), &websocket.DialOptions{
			HTTPClient: &hc, HTTPHeader: c.header(), CompressionMode: websocket.CompressionDisabled,
		})
		if err == nil {
			conn.SetReadLimit(socketMessageLimit)
			return conn, resp.Header, nil
		}
		if refusal.answer != nil {
			return nil, nil, c.responseError(refusal.answer)
		}
		coded := c.transportError(ctx, err)
		if !notConnected(err) || try >= c.retries || api.CodeOf(coded) != api.CodeServerUnreachable {
			return nil, nil, coded
		}
		if !sleep(ctx, retryBase<<try) {
			return nil, nil, c.transportError(ctx, ctx.Err())
		}
	}
}

// dialExec opens the WebSocket of a command.
func (c *Client) dialExec(ctx context.Context, path []string) (*run, error) {
	conn, _, err := c.dialSocket(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	r := &run{c: c, conn: conn, read: make(chan struct{}), watch: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r, nil
}

// refusal keeps the whole of an answer that is no WebSocket; the library keeps
// only so much of it that an error's envelope can be cut short.
type refusal struct {
	next   http.RoundTripper
	answer *http.Response
}

// RoundTrip implements http.RoundTripper.
func (t *refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	next := t.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyLimit))
	resp.Body.Close()
	kept := *resp
	kept.Body = io.NopCloser(bytes.NewReader(body))
	t.answer = &kept
	resp.Body = http.NoBody
	return resp, nil
}

func (r *run) close() {
	r.cancel()
	_ = r.conn.CloseNow() // all that matters was said before
}

// begin sends the command and waits until it runs.
func (r *run) begin(ctx context.Context, in api.Exec) (pid int, err error) {
	stop := context.AfterFunc(ctx, r.cancel)
	defer stop()
	if err := r.send(ctx, api.ExecInput{Type: "start", Exec: &in}); err != nil {
		return 0, err
	}
	ev, err := r.next(ctx)
	if err != nil {
		return 0, err
	}
	switch {
	case ev.Type == "start":
		return ev.PID, nil
	case ev.Type == "error" && ev.Error != nil:
		return 0, ev.Error
	}
	return 0, api.Errorf(api.CodeNotAServer, "the server answered a command with %q instead of starting it", ev.Type)
}

// next reads one event. ctx only explains a failure.
func (r *run) next(ctx context.Context) (api.ExecEvent, error) {
	var ev api.ExecEvent
	kind, raw, err := r.conn.Read(r.ctx)
	if err != nil {
		if status := websocket.CloseStatus(err); status != -1 {
			return ev, api.Wrap(api.CodeServerUnreachable, err, "the server closed the connection before the command ended").
				WithHint("The command may still have run; look at the sandbox's logs.")
		}
		return ev, r.c.transportError(ctx, err)
	}
	if kind != websocket.MessageText || json.Unmarshal(raw, &ev) != nil {
		return ev, api.Errorf(api.CodeNotAServer, "the server sent a message that is not what this version of the client knows")
	}
	return ev, nil
}

func (r *run) send(ctx context.Context, in api.ExecInput) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return api.Wrap(api.CodeInvalidRequest, err, "the command cannot be written as JSON")
	}
	if err := r.conn.Write(ctx, websocket.MessageText, raw); err != nil {
		return r.c.transportError(ctx, err)
	}
	return nil
}

// receive writes output where it belongs until the command has ended. An error
// event says that something could not be done, such as input for a command
// that has just ended; it is what went wrong only if no exit follows.
func (r *run) receive(stdout, stderr io.Writer) (*api.ExecResult, error) {
	var failure error
	for {
		ev, err := r.next(r.ctx)
		if err != nil {
			if failure != nil {
				err = failure
			}
			return nil, err
		}
		switch ev.Type {
		case "stdout":
			err = writeAll(stdout, ev.Data)
		case "stderr":
			err = writeAll(stderr, ev.Data)
		case "exit":
			if ev.Result == nil {
				return nil, api.Errorf(api.CodeNotAServer, "the server did not say how the command ended")
			}
			return ev.Result, nil
		case "error":
			failure = api.Errorf(api.CodeInternal, "the command failed on the server")
			if ev.Error != nil {
				failure = ev.Error
			}
		}
		if err != nil {
			// Nobody takes the output: the server kills the command when
			// the connection goes.
			return nil, err
		}
	}
}

func writeAll(w io.Writer, p []byte) error {
	if w == nil || len(p) == 0 {
		return nil
	}
	_, err := w.Write(p)
	return err
}

// watchCancel asks for the command's end when its context ends, and cuts the
// connection if it does not come.
func (r *run) watchCancel(c *Cmd) error {
	select {
	case <-r.read:
		return nil
	case <-c.ctx.Done():
	}
	delay := c.WaitDelay
	if delay <= 0 {
		delay = defaultWaitDelay
	}
	deadline := time.NewTimer(delay)
	defer deadline.Stop()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if c.Cancel != nil {
			_ = c.Cancel() // the connection is cut if it did not work
			return
		}
		_ = r.send(r.ctx, api.ExecInput{Type: "signal", Signal: "SIGKILL"})
	}()
	select {
	case <-r.read:
	case <-deadline.C:
		c.closePipes() // one that nobody reads would hold up the reader
	}
	r.cancel()
	<-r.read
	<-asked
	return r.c.transportError(c.ctx, c.ctx.Err())
}

// feed copies standard input to the command, then closes it there.
func (r *run) feed(in io.Reader) {
	if in != nil {
		buf := make([]byte, stdinChunk)
		for {
			n, err := in.Read(buf)
			if n > 0 && r.conn.Write(r.ctx, websocket.MessageBinary, buf[:n]) != nil {
				return // the reader sees the same failure
			}
			if err != nil {
				break
			}
		}
	}
	_ = r.send(r.ctx, api.ExecInput{Type: "close_stdin"})
}
