package pages

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sync"
)

var (
	errCut    = errors.New("pages: the connection to the snapshot is cut")
	errFailed = errors.New("pages: the snapshot cannot be read")
)

// remote is an io.ReaderAt whose bytes come over a socket. It runs inside the
// sentry and uses plain reads and writes, which its system call filter allows.
type remote struct {
	socket *fd.FD
	send   sync.Mutex

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]*pending
	cut     bool
}

type pending struct {
	buf  []byte
	done chan error
}

func newRemote(socket *fd.FD) *remote {
	r := &remote{socket: socket, waiting: map[uint32]*pending{}}
	go r.receive()
	return r
}

// ReadAt implements io.ReaderAt.
func (r *remote) ReadAt(b []byte, off int64) (int, error) {
	p := &pending{buf: b, done: make(chan error, 1)}
	r.mu.Lock()
	if r.cut {
		r.mu.Unlock()
		return 0, errCut
	}
	r.next++
	id := r.next
	r.waiting[id] = p
	r.mu.Unlock()

	r.send.Lock()
	_, err := r.socket.Write(request{id: id, length: uint32(len(b)), offset: uint64(off)}.encode())
	r.send.Unlock()
	if err != nil {
		r.hangUp()
	}
	if err := <-p.done; err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends every read.
func (r *remote) Close() error {
	r.hangUp()
	return nil
}

// hangUp makes receive end, which gives up all that wait.
func (r *remote) hangUp() { unix.Shutdown(r.socket.FD(), unix.SHUT_RDWR) }

func (r *remote) receive() {
	for r.receiveOne() == nil {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for id, p := range r.waiting {
		p.done <- errCut
		delete(r.waiting, id)
	}
	r.socket.Close()
}

func (r *remote) receiveOne() error {
	head := make([]byte, answerSize)
	if _, err := io.ReadFull(r.socket, head); err != nil {
		return err
	}
	a := decodeAnswer(head)
	r.mu.Lock()
	p := r.waiting[a.id]
	delete(r.waiting, a.id)
	r.mu.Unlock()
	switch {
	case p == nil:
		return errCut
	case a.status != statusOK || int(a.count) != len(p.buf):
		p.done <- errFailed
		return nil
	}
	_, err := io.ReadFull(r.socket, p.buf)
	if err != nil {
		p.done <- errCut
		return err
	}
	p.done <- nil
	return nil
}
