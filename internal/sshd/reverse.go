package sshd

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
)

// address is what a client asks to be listened on, in its own words, which it is
// told again with every connection.
type address struct {
	Host string
	Port uint32
}

// listener is a port of the sandbox that leads to the client.
type listener struct {
	at   address
	feed net.Conn // of the relay; its end is the listener's
}

// listen begins to listen inside, and gives the port if the client left it open.
func (c *conn) listen(ctx context.Context, payload []byte) ([]byte, bool) {
	var at address
	if ssh.Unmarshal(payload, &at) != nil || at.Port > 0xffff || at.Port == api.InternalPort || len(at.Host) > 255 || !c.allowed(ctx) {
		return nil, false
	}
	c.mu.Lock()
	_, taken := c.listeners[at]
	full := len(c.listeners) >= maxListeners
	c.mu.Unlock()
	if taken || full {
		return nil, false
	}
	feed, answer, err := c.ask(ctx, "listen", int(at.Port))
	if err != nil {
		c.s.Log.Debug("a port was not forwarded", "sandbox_id", c.id, "port", at.Port, "error", err)
		return nil, false
	}
	var reply []byte
	if at.Port == 0 {
		port, err := strconv.ParseUint(answer, 10, 16)
		if err != nil || port == 0 {
			feed.Close()
			return nil, false
		}
		at.Port = uint32(port)
		reply = ssh.Marshal(struct{ Port uint32 }{at.Port})
	}
	l := &listener{at: at, feed: feed}
	c.mu.Lock()
	c.listeners[at] = l
	c.mu.Unlock()
	c.work.Go(func() { c.accept(ctx, l) })
	return reply, true
}

// unlisten ends a listener.
func (c *conn) unlisten(payload []byte) bool {
	var at address
	if ssh.Unmarshal(payload, &at) != nil {
		return false
	}
	c.mu.Lock()
	l := c.listeners[at]
	c.mu.Unlock()
	if l == nil {
		return false
	}
	return l.feed.Close() == nil
}

// accept takes what the relay has accepted, one line each, until the listener ends.
func (c *conn) accept(ctx context.Context, l *listener) {
	defer c.s.Sandboxes.Use(c.id)()
	defer context.AfterFunc(ctx, func() { l.feed.Close() })()
	defer func() {
		l.feed.Close()
		c.mu.Lock()
		delete(c.listeners, l.at)
		c.mu.Unlock()
	}()
	for {
		line, err := readLine(l.feed)
		if err != nil {
			return
		}
		token, from, ok := parseAccepted(line)
		if !ok {
			return // not a relay of ours
		}
		select { // with no room it waits, and the relay with it
		case c.reverse <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c.work.Go(func() {
			defer func() { <-c.reverse }()
			c.back(ctx, l.at, token, from)
		})
	}
}

// back carries one accepted connection to the client.
func (c *conn) back(ctx context.Context, at address, token string, from netip.AddrPort) {
	inside, err := c.call(ctx, "take "+token)
	if err != nil {
		return // it was closed meanwhile
	}
	defer inside.Close()
	payload := ssh.Marshal(forwarded{Host: at.Host, Port: at.Port, Origin: from.Addr().String(), From: uint32(from.Port())})
	ch, reqs, err := c.ssh.OpenChannel("forwarded-tcpip", payload)
	if err != nil {
		return // the client does not want it
	}
	c.carry(ctx, ch, reqs, inside)
}

// parseAccepted reads a line of a listener: TOKEN ADDRESS PORT.
func parseAccepted(line string) (token string, from netip.AddrPort, ok bool) {
	f := strings.Split(line, " ")
	if len(f) != 3 || !isToken(f[0]) {
		return "", from, false
	}
	from, err := netip.ParseAddrPort(net.JoinHostPort(f[1], f[2]))
	return f[0], from, err == nil && from.Addr().Zone() == ""
}
