//go:build linux

package guestd

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The largest pieces of output: of a pipe, and of a terminal.
const (
	pipeChunk = 32 << 10
	ptyChunk  = 16 << 10
)

// drainMax bounds what is still read of an output that is not waited for.
const drainMax = 1 << 20

// stream says which output bytes are of.
type stream int

const (
	streamStdout stream = iota
	streamStderr
	streamPTY
	streamSystem // of what the daemon itself does
)

// String is the name of the stream in the log.
func (s stream) String() string { return [...]string{"stdout", "stderr", "pty", "system"}[s] }

// chunk is one piece of output, shared by those that send it and then used
// again.
type chunk struct {
	from stream
	data []byte
	buf  [pipeChunk]byte
	refs atomic.Int32
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func (c *chunk) release() {
	if c.refs.Add(-1) == 0 {
		chunks.Put(c)
	}
}

// subscriber is one client that follows a process. The pump hands it chunks one
// by one and waits for it until it leaves.
type subscriber struct {
	before *backlog // what was written before; nil if not asked for
	chunks chan *chunk
	left   chan struct{}
}

// subscribe adds a follower, with replay one that is also given what is kept of
// the output so far: every byte comes either in that or as a chunk. leave must be
// called once.
func (p *process) subscribe(replay bool) *subscriber {
	s := &subscriber{chunks: make(chan *chunk), left: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if replay {
		s.before = p.tail.copy()
	}
	p.subs = append(p.subs[:len(p.subs):len(p.subs)], s)
	return s
}

func (p *process) leave(s *subscriber) {
	close(s.left)
	p.mu.Lock()
	defer p.mu.Unlock()
	var rest []*subscriber
	for _, o := range p.subs {
		if o != s {
			rest = append(rest, o)
		}
	}
	p.subs = rest
}

// pump reads one output until its end, or until it is cut.
func (p *process) pump(f *os.File, from stream, log *ring) {
	defer p.part()
	size := pipeChunk
	if from == streamPTY {
		size = ptyChunk
	}
	src := origin{serial: p.serial, pid: p.pid, out: from}
	raw, err := f.SyscallConn()
	drained, cut := 0, false
	for err == nil {
		var c *chunk
		if c, err = readChunk(raw, size, cut); c != nil {
			c.from = from
			if cut {
				drained += len(c.data)
			}
			p.deliver(c, src, log)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !cut {
			// What the program wrote before its end still counts.
			cut, err = true, f.SetReadDeadline(time.Time{})
		}
		if drained >= drainMax {
			break
		}
	}
	if from != streamPTY {
		log.add(src, nil, true)
		f.Close()
	}
}

// readChunk reads once. It takes a buffer only when there is something to read,
// so that waiting costs no memory. With now set it does not wait.
func readChunk(raw syscall.RawConn, size int, now bool) (*chunk, error) {
	var c *chunk
	var err error
	werr := raw.Read(func(fd uintptr) bool {
		buf := chunks.Get().(*chunk)
		n, e := 0, error(syscall.EINTR)
		for e == syscall.EINTR {
			n, e = syscall.Read(int(fd), buf.buf[:size])
		}
		if e == nil && n > 0 {
			buf.data = buf.buf[:n]
			c = buf
			return true
		}
		chunks.Put(buf)
		if e == syscall.EAGAIN && !now {
			return false
		}
		if err = e; e == nil {
			err = io.EOF
		}
		return true
	})
	if werr != nil {
		return nil, werr
	}
	return c, err
}

// deliver gives a chunk to the log, to the process's tail and to every follower,
// and waits for these.
// A terminal's output is not logged: it is full of control sequences, and of
// what people type.
func (p *process) deliver(c *chunk, src origin, log *ring) {
	if c.from != streamPTY {
		log.add(src, c.data, false)
	}
	p.mu.Lock()
	p.tail.add(c.from, c.data, p.table.room)
	subs := p.subs
	p.mu.Unlock()
	c.refs.Store(int32(len(subs)) + 1)
	for _, s := range subs {
		select {
		case s.chunks <- c:
		case <-s.left:
			c.release()
		}
	}
	c.release()
}
