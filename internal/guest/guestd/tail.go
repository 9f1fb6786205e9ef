//go:build linux

package guestd

import (
	"bytes"
	"sync/atomic"
)

// Bounds of the output that is kept for whoever attaches late.
const (
	tailBytes  = 256 << 10 // of one process
	tailFirst  = 4 << 10   // what every process that writes may keep
	tailSpans  = 4096      // changes between the streams of one process
	tailsBytes = 8 << 20   // of all processes beyond their first
)

// span is a run of bytes of one stream.
type span struct {
	from stream
	n    int
}

// tail is the last output of one process in the order in which it was read. Its
// buffer grows with what is written, as far as the budget goes; then the oldest
// bytes go.
type tail struct {
	buf   []byte // a ring
	head  int    // where the next byte goes
	n     int    // bytes in it
	spans []span // of those bytes, oldest first
	lost  int64  // bytes that are gone
}

// budget is the memory that all tails share.
type budget struct{ used atomic.Int64 }

// take gets n bytes, if there are as many.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) <= tailsBytes {
		return true
	}
	b.used.Add(-int64(n))
	return false
}

// add appends output. More is asked for memory.
func (t *tail) add(from stream, data []byte, more func(int) bool) {
	t.grow(t.n+len(data), more)
	if over := len(data) - len(t.buf); over > 0 {
		data = data[over:]
		t.lost += int64(over)
	}
	t.drop(t.n + len(data) - len(t.buf))
	for rest := data; len(rest) > 0; {
		n := copy(t.buf[t.head:], rest)
		t.head, rest = (t.head+n)%len(t.buf), rest[n:]
	}
	t.n += len(data)
	if last := len(t.spans) - 1; last >= 0 && t.spans[last].from == from {
		t.spans[last].n += len(data)
		return
	}
	if len(t.spans) == tailSpans {
		t.drop(t.spans[0].n)
	}
	t.spans = append(t.spans, span{from, len(data)})
}

// grow makes room for want bytes, or for as many as it gets.
func (t *tail) grow(want int, more func(int) bool) {
	size := len(t.buf)
	for size < min(want, tailBytes) {
		next := max(2*size, tailFirst)
		if size > 0 && !more(next-size) {
			break
		}
		size = next
	}
	if size == len(t.buf) {
		return
	}
	buf := make([]byte, size)
	t.copyTo(buf)
	t.buf, t.head = buf, t.n%size
}

// drop forgets the oldest n bytes.
func (t *tail) drop(n int) {
	for n > 0 && len(t.spans) > 0 {
		part := min(n, t.spans[0].n)
		t.spans[0].n -= part
		t.n -= part
		t.lost += int64(part)
		n -= part
		if t.spans[0].n == 0 {
			t.spans = t.spans[1:]
		}
	}
}

// copyTo copies all bytes, oldest first, to the start of buf.
func (t *tail) copyTo(buf []byte) {
	if t.n == 0 {
		return
	}
	first := (t.head - t.n + len(t.buf)) % len(t.buf)
	end := min(first+t.n, len(t.buf))
	copied := copy(buf, t.buf[first:end])
	copy(buf[copied:], t.buf[:t.n-copied])
}

// backlog is a copy of a tail, to be sent to one follower.
type backlog struct {
	data  []byte
	spans []span
	lost  int64
}

// copy gives the tail as it is now. That of a terminal whose beginning is gone
// starts with a whole line, so that no control sequence is cut in half.
func (t *tail) copy() *backlog {
	b := &backlog{data: make([]byte, t.n), spans: append([]span(nil), t.spans...), lost: t.lost}
	t.copyTo(b.data)
	if b.lost == 0 || len(b.spans) != 1 || b.spans[0].from != streamPTY {
		return b
	}
	if i := bytes.IndexByte(b.data[:min(len(b.data), tailFirst)], '\n'); i >= 0 {
		b.data = b.data[i+1:]
		b.spans[0].n -= i + 1
		b.lost += int64(i + 1)
	}
	return b
}

// release gives the memory back and forgets everything.
func (t *tail) release(b *budget) {
	if extra := len(t.buf) - tailFirst; extra > 0 {
		b.used.Add(-int64(extra))
	}
	*t = tail{lost: t.lost + int64(t.n)}
}

// room takes memory for the tail of a running process, if need be from those
// that have ended. It is called with the lock of the running process, which is
// taken before the table's, and that before those of processes that have ended.
func (t *table) room(n int) bool {
	for !t.tails.take(n) {
		if !t.shed() {
			return false
		}
	}
	return true
}

// shed gives up the oldest tail of a process that has ended.
func (t *table) shed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.old {
		p.mu.Lock()
		large := len(p.tail.buf) > tailFirst
		if large {
			p.tail.release(&t.tails)
		}
		p.mu.Unlock()
		if large {
			return true
		}
	}
	return false
}
