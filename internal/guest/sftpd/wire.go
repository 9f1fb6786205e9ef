//go:build linux

package sftpd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// The bounds that limits@openssh.com tells clients.
const (
	maxPacket  = 256<<10 + 1<<10
	maxData    = 255 << 10
	maxHandles = 256
)

// errBad is a request that makes no sense.
var errBad = errors.New("sftp: a packet is malformed")

// reader takes the fields of one packet apart. After the first that is not
// there, all are zero and ok is false.
type reader struct {
	data []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.data) {
		r.bad = true
		return nil
	}
	out := r.data[:n]
	r.data = r.data[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// bytes is a string of the protocol, valid until the next packet is read.
func (r *reader) bytes() []byte {
	n := r.uint32()
	if n > maxPacket {
		r.bad = true
		return nil
	}
	return r.take(int(n))
}

func (r *reader) string() string { return string(r.bytes()) }

// readPacket reads one packet into buf, which is given back, grown if it was too
// small. The end of the stream between two packets is io.EOF.
func readPacket(in *bufio.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return buf, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxPacket {
		return buf, errBad
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(in, buf); err != nil {
		return buf, io.ErrUnexpectedEOF
	}
	return buf, nil
}

// answer is a packet under construction.
type answer struct{ b []byte }

// begin starts a packet with room for its length.
func (a *answer) begin(kind byte, id uint32) {
	a.b = append(a.b[:0], 0, 0, 0, 0, kind)
	a.uint32(id)
}

func (a *answer) uint32(v uint32)  { a.b = binary.BigEndian.AppendUint32(a.b, v) }
func (a *answer) uint64(v uint64)  { a.b = binary.BigEndian.AppendUint64(a.b, v) }
func (a *answer) string(s string)  { a.uint32(uint32(len(s))); a.b = append(a.b, s...) }
func (a *answer) finish() []byte   { binary.BigEndian.PutUint32(a.b, uint32(len(a.b)-4)); return a.b }
func (a *answer) set(at, v uint32) { binary.BigEndian.PutUint32(a.b[at:], v) }
