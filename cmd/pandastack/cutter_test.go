//go:build linux

package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter passes connections on, and cuts some of them after so many bytes.
type cutter struct {
	url   string
	to    string
	moved atomic.Int64 // bytes in both directions
	limit atomic.Int64
	cuts  atomic.Int64 // left to make
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{url: "http://" + l.Addr().String(), to: strings.TrimPrefix(to, "http://")}
	var passing sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	passing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			passing.Go(func() { c.pass(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		passing.Wait()
	})
	return c
}

// after cuts the next so many connections that move more than limit bytes.
func (c *cutter) after(limit int64, cuts int64) {
	c.limit.Store(limit)
	c.cuts.Store(cuts)
}

func (c *cutter) pass(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer server.Close()
	var n atomic.Int64
	var both sync.WaitGroup
	pump := func(to io.Writer, from io.Reader) {
		defer func() { conn.Close(); server.Close() }()
		buf := make([]byte, 32<<10)
		for {
			k, err := from.Read(buf)
			c.moved.Add(int64(k))
			if n.Add(int64(k)) > c.limit.Load() && c.cuts.Load() > 0 {
				c.cuts.Add(-1)
				return
			}
			if _, werr := to.Write(buf[:k]); werr != nil || err != nil {
				return
			}
		}
	}
	both.Go(func() { pump(server, conn) })
	both.Go(func() { pump(conn, server) })
	both.Wait()
}
