package gvisor

import (
	"net"
	"sync"
)

// conns is the open connections to one machine. A sentry that is killed says no
// goodbye to its peers, so they must be cut from this side.
type conns struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

type conn struct {
	*net.TCPConn
	set  *conns
	once sync.Once
}

// add wraps a connection; after cut it closes it at once.
func (s *conns) add(c *net.TCPConn) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return c
	}
	if s.open == nil {
		s.open = map[*conn]struct{}{}
	}
	w := &conn{TCPConn: c, set: s}
	s.open[w] = struct{}{}
	return w
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.set.mu.Lock()
		delete(c.set.open, c)
		c.set.mu.Unlock()
	})
	return c.TCPConn.Close()
}

// cut closes every connection, and those still to come.
func (s *conns) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		c.TCPConn.SetLinger(0)
		c.TCPConn.Close()
	}
	clear(s.open)
}
