package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

const (
	maxRead     = 1 << 20 // bytes of one request
	maxParallel = 16      // requests under way

	requestSize = 16
	answerSize  = 12
)

// What an answer says of its request.
const (
	statusOK = iota
	statusFailed
)

// request asks for a part of one file.
type request struct {
	id, length uint32
	offset     uint64
}

func (r request) encode() []byte {
	b := make([]byte, requestSize)
	binary.LittleEndian.PutUint32(b, r.id)
	binary.LittleEndian.PutUint32(b[4:], r.length)
	binary.LittleEndian.PutUint64(b[8:], r.offset)
	return b
}

func decodeRequest(b []byte) request {
	return request{
		id:     binary.LittleEndian.Uint32(b),
		length: binary.LittleEndian.Uint32(b[4:]),
		offset: binary.LittleEndian.Uint64(b[8:]),
	}
}

// check refuses what an honest sentry never asks for.
func (r request) check(size int64) error {
	switch {
	case r.length == 0 || r.length > maxRead:
		return fmt.Errorf("a read of %d bytes", r.length)
	case r.offset > uint64(size) || uint64(r.length) > uint64(size)-r.offset:
		return fmt.Errorf("a read of %d bytes at %d in a file of %d", r.length, r.offset, size)
	}
	return nil
}

// answer stands before the bytes that were asked for.
type answer struct{ id, count, status uint32 }

func (a answer) encode(b []byte) {
	binary.LittleEndian.PutUint32(b, a.id)
	binary.LittleEndian.PutUint32(b[4:], a.count)
	binary.LittleEndian.PutUint32(b[8:], a.status)
}

func decodeAnswer(b []byte) answer {
	return answer{
		id:     binary.LittleEndian.Uint32(b),
		count:  binary.LittleEndian.Uint32(b[4:]),
		status: binary.LittleEndian.Uint32(b[8:]),
	}
}

// Session serves the remote files of one sentry until it is closed.
type Session struct {
	mu    sync.Mutex
	err   error // the first one
	conns []net.Conn
}

// Err is why a file could not be read, nil while all went well.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// Close cuts the sentry off. Reads that are under way end by themselves.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}

// serve answers requests for one file in the background.
func (s *Session) serve(name string, size int64, at io.ReaderAt, conn net.Conn) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	go func() {
		defer conn.Close()
		s.answerAll(name, size, at, conn)
	}()
}

func (s *Session) answerAll(name string, size int64, at io.ReaderAt, conn net.Conn) {
	var (
		writing sync.Mutex
		readers sync.WaitGroup
		budget  = 2*size + maxRead
		free    = make(chan []byte, maxParallel) // buffers; their number bounds the reads under way
	)
	defer readers.Wait()
	for range maxParallel {
		free <- nil
	}
	for {
		head := make([]byte, requestSize)
		if _, err := io.ReadFull(conn, head); err != nil {
			return // the sentry has all it needs, or has ended
		}
		r := decodeRequest(head)
		budget -= int64(r.length)
		if err := r.check(size); err != nil || budget < 0 {
			s.fail(fmt.Errorf("the runtime asks for more of %s than there is: %w", name, errors.Join(err, errBudget(budget))))
			return
		}
		buf := <-free
		readers.Go(func() {
			defer func() { free <- buf }()
			if buf == nil {
				buf = make([]byte, answerSize+maxRead)
			}
			out := s.read(name, at, r, buf)
			writing.Lock()
			defer writing.Unlock()
			conn.Write(out)
		})
	}
}

func errBudget(left int64) error {
	if left < 0 {
		return errors.New("everything was read twice")
	}
	return nil
}

// read does one request and gives its answer, in buf.
func (s *Session) read(name string, at io.ReaderAt, r request, buf []byte) []byte {
	n, err := at.ReadAt(buf[answerSize:answerSize+int(r.length)], int64(r.offset))
	if n == int(r.length) {
		answer{r.id, r.length, statusOK}.encode(buf)
		return buf[:answerSize+n]
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	s.fail(fmt.Errorf("read %d bytes at %d of %s: %w", r.length, r.offset, name, err))
	answer{r.id, 0, statusFailed}.encode(buf)
	return buf[:answerSize]
}
