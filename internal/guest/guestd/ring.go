//go:build linux

package guestd

import (
	"sync"
	"time"
)

// What the log keeps: bytes of output, and pieces they came in.
const (
	ringBytes  = 256 << 10
	ringPieces = 4096
)

// origin is one output stream of one process. Serial is unique where the pid
// may come again.
type origin struct {
	serial uint64
	pid    int
	out    stream
}

// piece is a run of bytes that one stream wrote at one time. end marks that the
// stream is over, so that a last line without a newline is a line.
type piece struct {
	from origin
	at   time.Time
	off  uint64 // of its first byte since the daemon began
	data int    // length
	end  bool
}

// ring keeps the last output of all processes as they wrote it. Lines are made
// by whoever reads: a program that prints a gigabyte costs one copy of it.
type ring struct {
	mu     sync.Mutex
	buf    []byte // made at the first output
	head   uint64 // offset after the last byte
	pieces []piece
	seq    uint64        // number of the first piece
	wake   chan struct{} // closed at the next append; nil while nobody waits
}

// add appends output of a stream. With end, the stream is over.
func (r *ring) add(from origin, data []byte, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		r.buf = make([]byte, ringBytes)
	}
	if len(data) > ringBytes {
		data = data[len(data)-ringBytes:]
	}
	for i := 0; i < len(data); {
		i += copy(r.buf[(r.head+uint64(i))%ringBytes:], data[i:])
	}
	r.pieces = append(r.pieces, piece{from: from, at: time.Now(), off: r.head, data: len(data), end: end})
	r.head += uint64(len(data))
	r.drop()
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// drop forgets pieces whose bytes were overwritten, or that are too many.
func (r *ring) drop() {
	n := 0
	for n < len(r.pieces) && (r.head-r.pieces[n].off > ringBytes || len(r.pieces)-n > ringPieces) {
		n++
	}
	if n == 0 {
		return
	}
	r.seq += uint64(n)
	if rest := r.pieces[n:]; len(rest) < cap(r.pieces)/4 {
		r.pieces = append(make([]piece, 0, 2*len(rest)), rest...)
	} else {
		r.pieces = rest
	}
}

// read copies what was added since piece number seq. It gives the number to go
// on from, and, if there is nothing yet, a channel that closes when there is.
// lost says that pieces in between are gone.
func (r *ring) read(seq uint64, visit func(piece, []byte)) (next uint64, lost bool, wait <-chan struct{}) {
	r.mu.Lock()
	if seq < r.seq {
		lost, seq = seq != 0, r.seq
	}
	todo := append([]piece(nil), r.pieces[min(seq-r.seq, uint64(len(r.pieces))):]...)
	if len(todo) == 0 {
		if r.wake == nil {
			r.wake = make(chan struct{})
		}
		wait = r.wake
		r.mu.Unlock()
		return seq, lost, wait
	}
	first := todo[0].off
	data := make([]byte, r.head-first)
	for i := 0; i < len(data); {
		i += copy(data[i:], r.buf[(first+uint64(i))%ringBytes:])
	}
	r.mu.Unlock()
	for _, p := range todo {
		visit(p, data[p.off-first:][:p.data])
	}
	return seq + uint64(len(todo)), lost, nil
}
