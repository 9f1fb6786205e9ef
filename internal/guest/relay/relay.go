//go:build linux

package relay

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	maxLine    = 128
	maxConns   = 256
	maxStrange = 16
	maxWaiting = 32
)

// relay is one run.
type relay struct {
	secret string
	end    func() // ends the run
	conns  chan struct{}

	mu      sync.Mutex
	strange []net.Conn          // that have not shown the secret
	waiting map[string]net.Conn // accepted ones, by token
}

// Run serves until in ends, ctx ends, or the host's hold ends.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The wildcard: the host comes from outside, over the sandbox's own address.
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	r := &relay{secret: rand.Text(), end: cancel, conns: make(chan struct{}, maxConns), waiting: map[string]net.Conn{}}
	if _, err := fmt.Fprintf(out, "relay %d %s\n", l.Addr().(*net.TCPAddr).Port, r.secret); err != nil {
		return err
	}
	go func() { // it ends with the program: a read of a pipe cannot be given up
		_, _ = io.Copy(io.Discard, in) // its end is all that is waited for
		cancel()
	}()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		r.meet(c)
		all.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			r.serve(ctx, c.(*net.TCPConn))
		})
	}
}

// meet notes a connection that has not shown the secret. One too many costs the
// oldest its life: whoever knows the secret shows it at once.
func (r *relay) meet(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.strange) == maxStrange {
		r.strange[0].Close()
		r.strange = r.strange[1:]
	}
	r.strange = append(r.strange, c)
}

// know notes that a connection is one of the host, or has ended.
func (r *relay) know(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range r.strange {
		if o == c {
			r.strange = append(r.strange[:i:i], r.strange[i+1:]...)
			return
		}
	}
}

// serve does what one connection asks for.
func (r *relay) serve(ctx context.Context, c *net.TCPConn) {
	line, err := readLine(c)
	secret, verb, arg := parse(line)
	r.know(c)
	if err != nil || subtle.ConstantTimeCompare([]byte(secret), []byte(r.secret)) != 1 {
		return
	}
	select {
	case r.conns <- struct{}{}:
		defer func() { <-r.conns }()
	default:
		say(c, "no too many connections")
		return
	}
	switch verb {
	case "hold":
		defer r.end()
		say(c, "ok")
		_, _ = io.Copy(io.Discard, c) // its end is all that is waited for
	case "dial":
		r.dial(ctx, c, arg)
	case "listen":
		r.listen(ctx, c, arg)
	case "take":
		r.take(ctx, c, arg)
	default:
		say(c, "no such verb")
	}
}

// dial connects to a port of the loopback address, which has two forms.
func (r *relay) dial(ctx context.Context, c *net.TCPConn, port string) {
	if !validPort(port, 1) {
		say(c, "no such port")
		return
	}
	var d net.Dialer
	peer, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		var six error
		if peer, six = d.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); six != nil {
			say(c, "no "+reason(err))
			return
		}
	}
	if say(c, "ok") == nil {
		splice(ctx, c, peer.(*net.TCPConn))
	}
	peer.Close()
}

// listen accepts connections for as long as c lasts.
func (r *relay) listen(ctx context.Context, c *net.TCPConn, port string) {
	if !validPort(port, 0) {
		say(c, "no such port")
		return
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		say(c, "no "+reason(err))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	room := make(chan struct{}, maxWaiting)
	var mine []string
	var watching sync.WaitGroup
	defer func() {
		cancel()
		l.Close()
		c.Close()
		watching.Wait()
		for _, token := range mine {
			if peer := r.claim(token); peer != nil {
				peer.Close()
			}
		}
	}()
	if say(c, "ok "+strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) != nil {
		return
	}
	watching.Go(func() {
		_, _ = io.Copy(io.Discard, c) // its end is all that is waited for
		cancel()
		l.Close()
	})
	defer context.AfterFunc(ctx, func() { l.Close(); c.Close() })()
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		peer, err := l.Accept()
		if err != nil {
			return
		}
		token := rand.Text()
		mine = append(r.unclaimed(mine), token)
		r.mu.Lock()
		r.waiting[token] = &accepted{TCPConn: peer.(*net.TCPConn), room: room}
		r.mu.Unlock()
		from := netip.MustParseAddrPort(peer.RemoteAddr().String())
		if say(c, fmt.Sprintf("%s %s %d", token, from.Addr().Unmap(), from.Port())) != nil {
			return
		}
	}
}

// accepted is a connection that takes up room until it is claimed.
type accepted struct {
	*net.TCPConn
	room chan struct{}
}

// unclaimed gives those of some tokens that still wait.
func (r *relay) unclaimed(tokens []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := tokens[:0]
	for _, t := range tokens {
		if r.waiting[t] != nil {
			out = append(out, t)
		}
	}
	return out
}

// claim takes an accepted connection out of those that wait; nil is none.
func (r *relay) claim(token string) *net.TCPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.waiting[token].(*accepted)
	if !ok {
		return nil
	}
	delete(r.waiting, token)
	<-c.room
	return c.TCPConn
}

func (r *relay) take(ctx context.Context, c *net.TCPConn, token string) {
	peer := r.claim(token)
	if peer == nil {
		say(c, "no such connection")
		return
	}
	if say(c, "ok") == nil {
		splice(ctx, c, peer)
	}
	peer.Close()
}

// splice carries bytes both ways until both ends have said all. An end that
// breaks ends both ways.
func splice(ctx context.Context, a, b *net.TCPConn) {
	defer context.AfterFunc(ctx, func() { a.Close(); b.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		both.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				a.Close()
				b.Close()
				return
			}
			_ = way[1].CloseWrite() // fails only if it is closed
		})
	}
	both.Wait()
}

func say(c net.Conn, line string) error {
	_, err := io.WriteString(c, line+"\n")
	return err
}

// readLine reads to the first newline and no byte further: what follows belongs
// to whom the connection is passed on.
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
	return "", errors.New("relay: the line is too long")
}

// parse takes a request apart: secret, verb and at most one argument.
func parse(line string) (secret, verb, arg string) {
	secret, line, _ = strings.Cut(line, " ")
	verb, arg, _ = strings.Cut(line, " ")
	return secret, verb, arg
}

func validPort(s string, least uint64) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n >= least
}

// reason is what the kernel said, without addresses.
func reason(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return "it failed"
}
