package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
)

// finish writes the line of the log and closes what is open. err is what decide
// gave: nil for a connection that was made and has ended.
func (f *flow) finish(err error) {
	var r refusal
	var u unreached
	cut := f.ctx.Err() != nil
	switch {
	case err == nil:
		f.line(api.VerdictAllowed, f.why())
		f.closeGently()
	case cut:
		f.close() // before anything was decided: the sandbox or the server has gone
	case errors.As(err, &r):
		f.in.buf = nil // saying no may take a moment
		f.refused(r)
		f.sayNo(r)
		f.closeGently()
	case errors.As(err, &u):
		f.line(api.VerdictAllowed, string(u))
		f.close()
	default:
		f.close()
	}
}

// why is the reason that an allowed connection was cut for, if it was.
func (f *flow) why() string {
	var r refusal
	if errors.As(context.Cause(f.ctx), &r) {
		return string(r)
	}
	return ""
}

// refused writes the line of a connection that was not made.
func (f *flow) refused(why refusal) { f.line(api.VerdictDenied, string(why)) }

func (f *flow) line(v api.Verdict, why string) {
	f.mu.Lock()
	to := f.to
	if f.dialled.IsValid() {
		to = f.dialled
	}
	c := api.Connection{
		Time: f.began, Protocol: "tcp", Name: f.logged, Address: to.Addr().String(), Port: int(to.Port()), Verdict: v, Reason: why,
		Sent: f.sent.Load(), Received: f.received.Load(),
	}
	f.mu.Unlock()
	if v == api.VerdictAllowed {
		c.Seconds = time.Since(f.began).Seconds()
	}
	f.s.record(f.g.id, c)
}

// sayNo tells the program in its own protocol that it is refused, where it has one
// for that: a program that only sees a closed connection tries again.
func (f *flow) sayNo(why refusal) {
	// Fatal, access_denied.
	const alert = "\x15\x03\x03\x00\x02\x02\x31"
	f.client.SetDeadline(time.Now().Add(time.Second))
	switch f.speaks {
	case speaksTLS:
		_, _ = io.WriteString(f.client, alert)
	case speaksHTTP:
		text := fmt.Sprintf("Refused by the network rules of the sandbox: %s.\n", why)
		_, _ = fmt.Fprintf(f.client, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	default:
		f.close()
		return
	}
	// What was sent and not read would make the kernel take the answer back.
	_ = f.client.CloseWrite()
	_, _ = io.CopyN(io.Discard, f.client, 256<<10)
}

// closeGently closes both sides after both have ended.
func (f *flow) closeGently() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.client.Close()
	if f.up != nil {
		f.up.Close()
	}
}

// dialFailure says why an address could not be reached, in words that do not tell
// anything of the host.
func dialFailure(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreached("the connection was refused")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT), isTimeout(err):
		return unreached("the address did not answer in time")
	}
	return unreached("the address could not be reached")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
