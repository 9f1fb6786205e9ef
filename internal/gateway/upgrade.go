package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// linger is how long one end of an upgraded connection may be silent when the
// other has nothing more to send. Without it a visitor who left would hold the
// connection, and the sandbox awake, for as long as what runs there likes; and
// the other way round.
const linger = time.Minute

// halves is a connection that is not read for ever after its writing half was
// closed: that is done when the other end of a tunnel has ended.
type halves struct {
	net.Conn
	linger time.Duration
	ended  atomic.Bool // the writing half
}

func (c *halves) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.ended.Load() {
		c.wait()
	}
	return n, err
}

// wait lets the other end be silent from now on for a while.
func (c *halves) wait() {
	_ = c.SetReadDeadline(time.Now().Add(c.linger)) // fails on a closed connection, which is not read any more
}

// CloseWrite ends one direction, where the connection knows that.
func (c *halves) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	c.ended.Store(true)
	c.wait()
	return half.CloseWrite()
}

// upgrading answers a request whose connection may become a tunnel.
type upgrading struct {
	http.ResponseWriter
	linger time.Duration
}

// Unwrap lets a http.ResponseController find the rest.
func (u *upgrading) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Hijack gives the client's connection as one of two halves.
func (u *upgrading) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &halves{Conn: conn, linger: u.linger}, buffered, nil
}
