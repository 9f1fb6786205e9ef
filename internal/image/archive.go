package image

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"io"

	"github.com/pandastack/pandastack/api"
)

// decompress looks at the first bytes of an archive and unpacks what it knows:
// plain tar, gzip and bzip2.
func decompress(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	head, _ := br.Peek(6)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, invalid("the archive begins like gzip but is not: %v", err)
		}
		return z, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(br), nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, invalid("the archive is compressed with zstd, which is not supported: send it plain or as gzip")
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, invalid("the archive is compressed with xz, which is not supported: send it plain or as gzip")
	case len(head) == 0:
		return nil, invalid("the archive is empty")
	}
	return br, nil
}

// archiveError tells a bad archive from a cancelled or failed read of it.
func archiveError(ctx context.Context, err error) error {
	var coded *api.Error
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.As(err, &coded) {
		return err
	}
	if f := full(err); errors.As(f, &coded) {
		return f
	}
	return api.Wrap(api.CodeTemplateInvalid, err, "the archive cannot be read: %v", err)
}

// cappedReader refuses to give more than left bytes.
type cappedReader struct {
	r    io.Reader
	left int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, invalid("the archive unpacks to more than its limit")
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}

// countingReader counts what was read, for progress.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
