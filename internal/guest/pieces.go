package guest

import (
	"errors"
	"io"
	"sync"
)

// The pieces in which the bytes of a file travel. A runtime pays for each piece,
// at every hop, more than for its bytes; a body that never fills a small one is
// spared the large ones.
const (
	smallPiece = 16 << 10
	largePiece = 256 << 10
)

var largePieces = sync.Pool{New: func() any { return new([largePiece]byte) }}

// pieces is the body of a request on its way to a sandbox: one goroutine reads it
// while another writes what was read before. What was read is handed on at once.
// After stop, or Close, no Read of the source begins; one that is under way is not
// waited for.
type pieces struct {
	full chan piece
	free chan []byte // two buffers, when nobody has them
	done chan struct{}
	once sync.Once
	why  error // of the end that stop made; set before done is closed
	now  piece // taken, and not read to its end
}

// piece is bytes at the beginning of a buffer, or the end.
type piece struct {
	buf, data []byte
	err       error // after data
}

func newPieces(r io.Reader) *pieces {
	p := &pieces{full: make(chan piece), free: make(chan []byte, 2), done: make(chan struct{})}
	p.free <- make([]byte, smallPiece)
	p.free <- make([]byte, smallPiece)
	go p.fill(r)
	return p
}

// fill reads until the end of the source, which it hands on.
func (p *pieces) fill(r io.Reader) {
	large := false
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-p.done:
			return
		}
		if large && len(buf) < largePiece {
			buf = largePieces.Get().(*[largePiece]byte)[:]
		}
		n, err := r.Read(buf)
		large = large || n == len(buf)
		select {
		case p.full <- piece{buf, buf[:n], err}:
		case <-p.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// stop ends the body with an error for whoever reads it.
func (p *pieces) stop(why error) {
	p.once.Do(func() {
		p.why = why
		close(p.done)
	})
}

// Close makes the body the transport's own, which wraps every other.
func (p *pieces) Close() error {
	p.stop(errBodyClosed)
	return nil
}

var errBodyClosed = errors.New("the body of the request was given up")

// next waits for a piece that has bytes, or for the end.
func (p *pieces) next() error {
	for len(p.now.data) == 0 {
		if p.now.buf != nil {
			p.free <- p.now.buf
			p.now.buf = nil
		}
		if p.now.err != nil {
			p.recycle()
			return p.now.err
		}
		select {
		case p.now = <-p.full:
		case <-p.done:
			return p.why
		}
	}
	return nil
}

// recycle keeps large buffers for other bodies. The source has ended: nobody else
// has one.
func (p *pieces) recycle() {
	for len(p.free) > 0 {
		if buf := <-p.free; len(buf) == largePiece {
			largePieces.Put((*[largePiece]byte)(buf))
		}
	}
}

// Read is for one goroutine, as is WriteTo.
func (p *pieces) Read(b []byte) (int, error) {
	if err := p.next(); err != nil {
		return 0, err
	}
	n := copy(b, p.now.data)
	p.now.data = p.now.data[n:]
	return n, nil
}

// WriteTo writes each piece at once.
func (p *pieces) WriteTo(w io.Writer) (int64, error) { return p.writeTo(w, -1) }

// writeTo is WriteTo for no more than limit bytes, if that is not negative.
func (p *pieces) writeTo(w io.Writer, limit int64) (total int64, err error) {
	for limit < 0 || total < limit {
		if err := p.next(); err != nil {
			if err == io.EOF {
				err = nil
			}
			return total, err
		}
		data := p.now.data
		if limit >= 0 {
			data = data[:min(int64(len(data)), limit-total)]
		}
		n, err := w.Write(data)
		p.now.data = p.now.data[n:]
		if total += int64(n); err != nil {
			return total, err
		}
	}
	return total, nil
}

// Sized says how many bytes r has, where that is known; a negative n is unknown.
// The sandbox takes a body of known size with less work.
func Sized(r io.Reader, n int64) io.Reader {
	if n < 0 {
		return r
	}
	return &sized{r, n}
}

type sized struct {
	io.Reader
	n int64
}
