package snapshot

import (
	"bytes"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Chunks are runs of whole pages. After minPages, a chunk ends behind the first
// page whose hash is below cutBelow, which one page in thirteen is: sixteen pages
// on average, maxPages at most. Where it ends so depends on content alone.
const (
	pageSize = 4096
	minPages = 4
	maxPages = 64
	maxChunk = maxPages * pageSize
	cutBelow = math.MaxUint64 / 13
)

var zeroPage [pageSize]byte

// piece is the next part of a file: zeros, or a chunk.
type piece struct {
	zeros int64
	data  []byte // until the next call
}

// cutter takes a file apart. Pages of zeros become runs; what remains at the end
// and is no whole page is a chunk of its own.
type cutter struct {
	r    io.Reader
	left int64 // to read
	buf  []byte
	pos  int // in buf
}

// newCutter cuts the size bytes that r must give.
func newCutter(r io.Reader, size int64) *cutter {
	return &cutter{r: r, left: size, buf: make([]byte, 0, 1<<20)}
}

// next gives the next piece, or io.EOF.
func (c *cutter) next() (piece, error) {
	if err := c.fill(); err != nil {
		return piece{}, err
	}
	if zeros, err := c.zeros(); err != nil || zeros > 0 {
		return piece{zeros: zeros}, err
	}
	rest := c.buf[c.pos:]
	n := 0
	for pages := 1; pages <= maxPages && len(rest)-n >= pageSize; pages++ {
		page := rest[n : n+pageSize]
		if isZero(page) {
			break
		}
		n += pageSize
		if pages >= minPages && xxhash.Sum64(page) < cutBelow {
			break
		}
	}
	if n == 0 {
		n = len(rest) // the tail
	}
	c.pos += n
	return piece{data: rest[:n]}, nil
}

// fill makes sure that a whole chunk is in the buffer, or the end of the file.
func (c *cutter) fill() error {
	if len(c.buf)-c.pos >= maxChunk || c.left == 0 {
		if c.pos == len(c.buf) {
			return io.EOF
		}
		return nil
	}
	kept := copy(c.buf[:cap(c.buf)], c.buf[c.pos:])
	n := int(min(int64(cap(c.buf)-kept), c.left))
	c.buf, c.pos = c.buf[:kept+n], 0
	if _, err := io.ReadFull(c.r, c.buf[kept:]); err == io.EOF {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	c.left -= int64(n)
	return nil
}

// zeros takes the run of zeros that comes next.
func (c *cutter) zeros() (int64, error) {
	var run int64
	for {
		rest := c.buf[c.pos:]
		n := min(len(rest), pageSize)
		if !isZero(rest[:n]) {
			return run, nil
		}
		run += int64(n)
		c.pos += n
		if err := c.fill(); err == io.EOF {
			return run, nil
		} else if err != nil {
			return run, err
		}
	}
}

func isZero(page []byte) bool { return bytes.Equal(page, zeroPage[:len(page)]) }
