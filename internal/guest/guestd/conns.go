//go:build linux

package guestd

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// conns is the connections of the daemon from other machines. Those that were
// made before a snapshot are there in every machine made of it, where nobody
// will ever answer on them again, and nothing says so: a program whose output
// goes to one would stand still for ever.
type conns struct {
	local bool // those from this machine as well; for tests
	mu    sync.Mutex
	open  map[net.Conn]struct{}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// track puts the hooks that keep the list into a server.
func (c *conns) track(server *http.Server) {
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			if c.local || !fromLoopback(conn) {
				c.open[conn] = struct{}{}
			}
		case http.StateClosed:
			delete(c.open, conn)
		}
	}
}

// cutOthers closes all connections but the one of this request. What is on its
// way out is dropped rather than sent again and again to nobody.
func (c *conns) cutOthers(ctx context.Context) {
	own, _ := ctx.Value(connKey{}).(net.Conn)
	c.mu.Lock()
	var old []net.Conn
	for conn := range c.open {
		if conn != own {
			old = append(old, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range old {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // fails only if it is closed
		}
		conn.Close()
	}
}

// fromLoopback reports whether both ends of a connection are in this machine,
// and so in the same snapshot.
func fromLoopback(conn net.Conn) bool {
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
