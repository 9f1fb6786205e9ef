package sshd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	maxLine     = 128 // of the relay; see package relay
	answerIn    = 10 * time.Second
	relayEndsIn = 3 * time.Second
)

// relay is the guest program's relay of one connection (see package relay).
type relay struct {
	proc   *guest.Process
	client *guest.Client
	port   int
	secret string
	hold   net.Conn
	gone   chan struct{} // closed when its process has ended, as far as is known
}

// ask has the relay do something with a port, and gives the connection and what
// it said.
func (c *conn) ask(ctx context.Context, verb string, port int) (net.Conn, string, error) {
	nc, answer, err := c.request(ctx, verb+" "+strconv.Itoa(port))
	var no refusal
	if errors.As(err, &no) {
		err = api.Errorf(api.CodeSandboxState, "port %d of the sandbox: %s", port, string(no))
	}
	return nc, answer, err
}

func (c *conn) call(ctx context.Context, request string) (net.Conn, error) {
	nc, _, err := c.request(ctx, request)
	return nc, err
}

// request connects to the relay, which is started if there is none, and makes one
// request. A relay that went away with a sandbox that slept is replaced.
func (c *conn) request(ctx context.Context, request string) (net.Conn, string, error) {
	for again := true; ; again = false {
		r, err := c.useRelay(ctx)
		if err != nil {
			return nil, "", err
		}
		nc, answer, err := c.say(ctx, r, request)
		var no refusal
		if err == nil || errors.As(err, &no) || !again || ctx.Err() != nil {
			return nc, answer, err
		}
		c.mu.Lock()
		if c.relay == r {
			c.relay = nil
		}
		c.mu.Unlock()
		r.end(ctx)
	}
}

// refusal is a reason of the relay's.
type refusal string

func (r refusal) Error() string { return string(r) }

// say makes one request of a relay on a connection of its own.
func (c *conn) say(ctx context.Context, r *relay, request string) (net.Conn, string, error) {
	nc, err := c.s.Sandboxes.Dial(ctx, c.who, c.id, r.port)
	if err != nil {
		return nil, "", err
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	answer, err := exchange(nc, r.secret+" "+request)
	if err != nil {
		nc.Close()
		return nil, "", err
	}
	return nc, answer, nil
}

// exchange sends a line and reads the answer to it.
func exchange(nc net.Conn, line string) (string, error) {
	if err := nc.SetDeadline(time.Now().Add(answerIn)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(nc, line+"\n"); err != nil {
		return "", err
	}
	answer, err := readLine(nc)
	if err != nil {
		return "", err
	}
	verb, rest, _ := strings.Cut(answer, " ")
	switch verb {
	case "ok":
		return rest, nc.SetDeadline(time.Time{})
	case "no":
		return "", refusal(strings.ToValidUTF8(strings.Map(printable, rest), "?"))
	}
	return "", errors.New("sshd: the relay's answer makes no sense")
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}

// readLine reads to the first newline and no byte further: what follows are bytes
// that are carried.
func readLine(r io.Reader) (string, error) {
	var line [maxLine]byte
	for n := range line {
		if _, err := io.ReadFull(r, line[n:n+1]); err != nil {
			return "", err
		}
		if line[n] == '\n' {
			return string(line[:n]), nil
		}
	}
	return "", errors.New("sshd: a line of the relay is too long")
}

// useRelay gives the relay of this connection, started at the first need.
func (c *conn) useRelay(ctx context.Context) (*relay, error) {
	c.starting <- struct{}{}
	defer func() { <-c.starting }()
	c.mu.Lock()
	r := c.relay
	c.mu.Unlock()
	if r != nil {
		select {
		case <-r.gone:
			r.end(ctx) // at once, for it has; what is held of it is let go
		default:
			return r, nil
		}
	}
	if ctx.Err() != nil {
		return nil, api.Wrap(api.CodeCanceled, ctx.Err(), "the connection ended")
	}
	r, err := c.startRelay(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.relay = r
	c.mu.Unlock()
	return r, nil
}

func (c *conn) startRelay(ctx context.Context) (*relay, error) {
	a, err := c.account(ctx)
	if err != nil {
		return nil, err
	}
	r := &relay{gone: make(chan struct{})}
	r.proc, r.client, err = c.start(ctx, []guest.Command{{Cmd: c.s.GuestProgram, Args: []string{"relay"}, Stdin: true, User: a.name, Cwd: "/"}})
	if err != nil {
		return nil, err
	}
	first := make(chan string, 1)
	c.relays.Go(func() {
		defer close(r.gone)
		r.listen(first)
	})
	late := time.NewTimer(answerIn)
	defer late.Stop()
	ok := false
	select {
	case line := <-first:
		r.port, r.secret, ok = parseHello(line)
	case <-r.gone:
	case <-late.C:
	case <-ctx.Done():
	}
	if ok {
		r.hold, _, err = c.say(ctx, r, "hold")
	}
	if !ok || err != nil {
		r.end(ctx)
		return nil, api.Wrap(api.CodeSandboxState, err, "the sandbox's relay did not start")
	}
	return r, nil
}

// listen reads what the process writes: one line, and nothing after it, until it
// has ended or nobody follows it any more.
func (r *relay) listen(first chan<- string) {
	var text []byte
	for {
		e, err := r.proc.Recv()
		if err != nil || e.Exit != nil {
			return
		}
		if text == nil || len(text) < maxLine && !bytes.ContainsRune(text, '\n') {
			text = append(text, e.Stdout[:min(len(e.Stdout), maxLine)]...)
			if line, _, ok := bytes.Cut(text, []byte("\n")); ok {
				first <- string(line) // once: there is room for it
			}
		}
	}
}

// end ends the relay and all that goes through it.
func (r *relay) end(ctx context.Context) {
	if r.hold != nil {
		r.hold.Close() // which it sees
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), relayEndsIn+killWithin)
	defer cancel()
	if r.hold != nil {
		grace, done := context.WithTimeout(ctx, relayEndsIn)
		defer done()
		select {
		case <-r.gone:
			return
		case <-grace.Done():
		}
	}
	_ = r.client.KillTree(ctx, r.proc.PID()) // it may have ended by itself, or the sandbox is gone
	r.proc.Close()
}

// endRelay is for when everything that used the relay has ended, but for the
// reader of its output.
func (c *conn) endRelay(ctx context.Context) {
	c.mu.Lock()
	r := c.relay
	c.mu.Unlock()
	if r != nil {
		r.end(ctx)
	}
}

// parseHello reads the relay's first line: relay PORT SECRET.
func parseHello(line string) (port int, secret string, ok bool) {
	f := strings.Split(line, " ")
	if len(f) != 3 || f[0] != "relay" || !isToken(f[2]) {
		return 0, "", false
	}
	n, err := strconv.ParseUint(f[1], 10, 16)
	if err != nil || n == 0 || n == api.InternalPort {
		return 0, "", false
	}
	return int(n), f[2], true
}

// isToken reports whether text can be a token or the secret of a relay: letters
// and digits, so that it ends where a line says.
func isToken(s string) bool {
	if len(s) < 16 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
