package sshd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
)

// takenWithin bounds how long a service may take for what a client sent before it
// closed its channel.
const takenWithin = 10 * time.Second

// forwarded is the payload of direct-tcpip and forwarded-tcpip: where to, and
// where from.
type forwarded struct {
	Host   string
	Port   uint32
	Origin string
	From   uint32
}

// direct connects the client to a port of the sandbox.
func (c *conn) direct(ctx context.Context, nc ssh.NewChannel) {
	var to forwarded
	if ssh.Unmarshal(nc.ExtraData(), &to) != nil || to.Port == 0 || to.Port > 0xffff {
		refuse(nc, ssh.ConnectionFailed, "the port makes no sense")
		return
	}
	if to.Port == api.InternalPort {
		refuse(nc, ssh.Prohibited, "this port of a sandbox is reserved")
		return
	}
	if !c.own(ctx, to.Host) {
		refuse(nc, ssh.Prohibited, "only ports of the sandbox itself are forwarded: name localhost")
		return
	}
	defer c.s.Sandboxes.Use(c.id)()
	inside, err := c.dial(ctx, int(to.Port))
	if err != nil {
		refuse(nc, ssh.ConnectionFailed, api.AsError(err).Message)
		return
	}
	defer inside.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return // the client is gone
	}
	c.carry(ctx, ch, reqs, inside)
}

// own reports whether a host is the sandbox: its loopback, its id, its hostname or
// its address. Names are not looked up.
func (c *conn) own(ctx context.Context, host string) bool {
	switch strings.ToLower(strings.TrimSuffix(host, ".")) {
	case "", "localhost", c.id, c.id[:min(len(c.id), 12)]:
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr = addr.Unmap(); addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	b, err := c.s.Sandboxes.Get(ctx, c.who, c.id)
	return err == nil && b.GuestIP == addr.String()
}

// dial connects to a port of the sandbox, on its address or else on its loopback,
// which cannot be reached from outside.
func (c *conn) dial(ctx context.Context, port int) (net.Conn, error) {
	nc, err := c.s.Sandboxes.Dial(ctx, c.who, c.id, port)
	var e *api.Error
	if err == nil || !errors.As(err, &e) || e.Code != api.CodeSandboxState || e.Details["port"] == nil {
		return nc, err
	}
	nc, _, err = c.ask(ctx, "dial", port)
	return nc, err
}

// carry passes bytes between a channel and a connection until both ends have said
// all, or one breaks. Once the client has closed the channel, what it sent before
// has a while to be taken inside: a service that does not read would keep the
// sandbox in use for ever.
func (c *conn) carry(ctx context.Context, ch ssh.Channel, reqs <-chan *ssh.Request, inside net.Conn) {
	end := sync.OnceFunc(func() {
		_ = ch.Close() // the client may be gone
		inside.Close()
	})
	defer end()
	defer context.AfterFunc(ctx, end)()
	taken := make(chan struct{}) // all that the client has sent
	var watch, ways sync.WaitGroup
	watch.Go(func() {
		ssh.DiscardRequests(reqs) // until the channel is closed
		late := time.NewTimer(takenWithin)
		defer late.Stop()
		select {
		case <-taken:
		case <-late.C:
		}
		end()
	})
	ways.Go(func() {
		defer close(taken)
		_, err := io.Copy(inside, &touching{ch, c})
		half, ok := inside.(interface{ CloseWrite() error })
		if err != nil || ok && half.CloseWrite() != nil {
			end()
		}
	})
	ways.Go(func() {
		if _, err := io.Copy(ch, &touching{inside, c}); err != nil || ch.CloseWrite() != nil {
			end()
		}
	})
	ways.Wait()
	end()
	watch.Wait()
}
