package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// source is the content of a Put. It ends with io.EOF after exactly the
// announced size, and with an error if the reader has less or more than that.
type source struct {
	ctx  context.Context
	r    io.Reader
	left int64
	err  error // the first that Read gave; it stays
}

func newSource(ctx context.Context, r io.Reader, size int64) *source {
	s := &source{ctx: ctx, r: r, left: size}
	if size < 0 {
		s.err = fmt.Errorf("size %d: %w", size, ErrSize)
	}
	return s
}

func (s *source) Read(p []byte) (n int, err error) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err != nil || len(p) == 0 {
		return 0, s.err
	}
	if s.left == 0 {
		s.err = s.end()
		return 0, s.err
	}
	if int64(len(p)) > s.left {
		p = p[:s.left]
	}
	n, err = s.r.Read(p)
	s.left -= int64(n)
	switch {
	case err == nil || err == io.EOF && s.left == 0:
	case err == io.EOF:
		s.err = fmt.Errorf("it ends %d bytes early: %w", s.left, ErrSize)
	default:
		s.err = err
	}
	return n, s.err
}

// end looks whether the reader is at its end as well.
func (s *source) end() error {
	var b [1]byte
	switch n, err := io.ReadFull(s.r, b[:]); {
	case n > 0:
		return fmt.Errorf("it goes on after its end: %w", ErrSize)
	default:
		return err
	}
}

// fill reads the next bytes of the content, all that p takes.
func (s *source) fill(p []byte) error {
	_, err := io.ReadFull(s, p)
	return err
}

// finish reports whether the content ended where it should.
func (s *source) finish() error {
	var b [1]byte
	if _, err := s.Read(b[:]); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// failed gives the error of the content, nil when it is not at fault.
func (s *source) failed(key string) error {
	if s.err == nil || s.err == io.EOF {
		return nil
	}
	return fmt.Errorf("blob %s: %w", key, s.err)
}
