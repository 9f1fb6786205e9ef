package sshd

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// conn is the connection of one client to one sandbox.
type conn struct {
	s   *Server
	nc  net.Conn
	ssh *ssh.ServerConn
	id  string // of the sandbox
	key string // fingerprint
	who auth.Identity

	work    sync.WaitGroup
	opened  chan struct{} // one token for every channel of the client's
	reverse chan struct{} // one token for every channel to the client

	relays   sync.WaitGroup
	starting chan struct{} // holds one token while a relay is started

	mu         sync.Mutex
	noSessions bool
	relay      *relay
	listeners  map[address]*listener
}

func newConn(s *Server, nc net.Conn, sc *ssh.ServerConn) *conn {
	p := sc.Permissions.Extensions
	return &conn{
		s: s, nc: nc, ssh: sc, id: sc.User(), key: p[permPrint],
		who:    auth.Identity{Org: p[permOrg], KeyPrefix: p[permBy], Name: p[permName]},
		opened: make(chan struct{}, maxChannels), reverse: make(chan struct{}, maxReverse), starting: make(chan struct{}, 1),
		listeners: map[address]*listener{},
	}
}

// serve does what the client asks for until the connection ends, and returns when
// all that was begun for it has ended too.
func (c *conn) serve(ctx context.Context, chans <-chan ssh.NewChannel, reqs <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(ctx)
	c.work.Go(func() { c.watch(ctx) })
	c.work.Go(func() { c.requests(ctx, reqs) })
	for nc := range chans {
		c.open(ctx, nc)
	}
	cancel()
	c.work.Wait()
	c.endRelay(ctx)
	c.relays.Wait()
}

// open begins a channel, if there is room and the key still counts.
func (c *conn) open(ctx context.Context, nc ssh.NewChannel) {
	select {
	case c.opened <- struct{}{}:
	default:
		refuse(nc, ssh.ResourceShortage, "too many channels are open on this connection")
		return
	}
	c.work.Go(func() {
		defer func() { <-c.opened }()
		if !c.allowed(ctx) {
			refuse(nc, ssh.Prohibited, "the key or the sandbox is gone")
			c.ssh.Close()
			return
		}
		switch nc.ChannelType() {
		case "session":
			c.session(ctx, nc)
		case "direct-tcpip":
			c.direct(ctx, nc)
		default:
			refuse(nc, ssh.UnknownChannelType, "this server has no such channels")
		}
	})
}

// refuse answers a channel that is not opened.
func refuse(nc ssh.NewChannel, why ssh.RejectionReason, text string) {
	_ = nc.Reject(why, text) // fails only when the client is gone
}

// allowed reports whether the key may still use the sandbox. A store that does not
// answer now is no reason to end what was allowed before.
func (c *conn) allowed(ctx context.Context) bool {
	who, err := c.s.Sandboxes.SSHIdentity(ctx, c.id, c.key)
	if err == nil {
		return who.Org == c.who.Org
	}
	return api.CodeOf(err) != api.CodeForbidden
}

// requests answers what is asked of the connection as a whole, in the order in
// which it is asked: answers have no number.
func (c *conn) requests(ctx context.Context, reqs <-chan *ssh.Request) {
	for r := range reqs {
		var ok bool
		var payload []byte
		switch r.Type {
		case "tcpip-forward":
			payload, ok = c.listen(ctx, r.Payload)
		case "cancel-tcpip-forward":
			ok = c.unlisten(r.Payload)
		case "no-more-sessions@openssh.com":
			c.mu.Lock()
			c.noSessions = true
			c.mu.Unlock()
			ok = true
		}
		if r.WantReply {
			_ = r.Reply(ok, payload) // fails only when the client is gone
		}
	}
}

// watch asks the client for a sign of life now and then. One that gives none for
// too long, or whose key is gone, is cut off.
func (c *conn) watch(ctx context.Context) {
	tick := time.NewTicker(c.s.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.alive(ctx) {
			if ctx.Err() == nil {
				c.s.Log.Info("an SSH client is gone", "sandbox_id", c.id, "key", c.key)
			}
			c.nc.Close() // not ssh.Close, which would wait for a peer that does not read
			return
		}
		if !c.allowed(ctx) && ctx.Err() == nil {
			c.s.Log.Info("an SSH connection ends: its key or its sandbox is gone", "sandbox_id", c.id, "key", c.key)
			c.nc.Close()
			return
		}
	}
}

func (c *conn) alive(ctx context.Context) bool {
	answered := make(chan error, 1)
	c.work.Go(func() {
		_, _, err := c.ssh.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err
	})
	late := time.NewTimer(c.s.LostAfter)
	defer late.Stop()
	select {
	case err := <-answered:
		return err == nil // refused is an answer too
	case <-late.C:
		return false
	case <-ctx.Done():
		return false
	}
}
