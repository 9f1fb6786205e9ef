package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/pandastack/pandastack/api"
)

// download is an object, or a range of one, on its way from a server. When its
// connection breaks it goes on from where it was, with the same version of the
// object, a few times.
type download struct {
	s        *S3
	ctx      context.Context
	key      string
	off      int64 // of the next byte
	end      int64 // after the last; -1 until the server said
	version  string
	modified time.Time
	body     io.ReadCloser
	tries    int
}

// open starts a download of the bytes from off to end, or to the object's end
// when end is -1.
func (s *S3) open(ctx context.Context, key string, off, end int64) (*download, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	d := &download{s: s, ctx: ctx, key: key, off: off, end: end}
	if err := d.request(); err != nil {
		return nil, s.failure(ctx, "give "+key, key, err)
	}
	return d, nil
}

// request asks for what is missing. A range that begins at the object's end is
// empty, not an error.
func (d *download) request() error {
	d.tries++
	var options minio.GetObjectOptions
	ranged := d.off > 0 || d.end >= 0
	if ranged {
		options.Set("Range", fmt.Sprintf("bytes=%d-%s", d.off, last(d.end)))
	}
	if d.version != "" {
		if err := options.SetMatchETag(d.version); err != nil {
			return err
		}
	}
	body, info, header, err := d.s.core.GetObject(d.ctx, d.s.config.Bucket, d.s.name(d.key), options)
	var said minio.ErrorResponse
	if ranged && errors.As(err, &said) && said.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		d.body, d.end = http.NoBody, d.off
		return nil
	}
	if err != nil {
		return err
	}
	if begins := rangeBegins(header); begins != d.off {
		body.Close()
		return api.Errorf(api.CodeSnapshotStore, "the blob store at %s gives other bytes than it was asked for", d.s.config.Endpoint)
	}
	if end := d.off + info.Size; d.end < 0 || end < d.end {
		d.end = end
	}
	d.body, d.version, d.modified = body, info.ETag, info.LastModified
	return nil
}

// last is the end of a range as HTTP has it.
func last(end int64) string {
	if end < 0 {
		return ""
	}
	return strconv.FormatInt(end-1, 10)
}

// rangeBegins gives the offset of an answer's first byte; a whole object has no
// range.
func rangeBegins(header http.Header) int64 {
	text := header.Get("Content-Range")
	if text == "" {
		return 0
	}
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "bytes "), "-")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (d *download) Read(p []byte) (int, error) {
	for {
		if d.off >= d.end {
			return 0, io.EOF
		}
		n, err := d.body.Read(p[:min(int64(len(p)), d.end-d.off)])
		d.off += int64(n)
		if n > 0 || err == nil {
			return n, nil // an error comes again
		}
		if err := d.resume(err); err != nil {
			return 0, err
		}
	}
}

// resume goes on after an error, or after an end that came too early.
func (d *download) resume(err error) error {
	for d.ctx.Err() == nil && d.tries < attempts {
		d.body.Close()
		d.body = http.NoBody
		if err = d.request(); err == nil {
			return nil
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return d.s.failure(d.ctx, "give "+d.key, d.key, err)
}

func (d *download) Close() error { return d.body.Close() }
