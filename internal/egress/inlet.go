package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// inlet is what one side of a connection sends: what was read ahead to decide, and
// then the connection itself, from which the kernel moves the bytes.
type inlet struct {
	conn net.Conn
	buf  []byte // read and not yet passed on
}

var errFull = errors.New("as much is read ahead as may be")

// until sets the time by which fill must read something; zero is no time.
func (in *inlet) until(t time.Time) { in.conn.SetReadDeadline(t) }

// fill reads once more, as long as fewer than limit bytes are held. It keeps no more
// room than limit, or one step.
func (in *inlet) fill(limit int) error {
	const step = 2 << 10
	if len(in.buf) >= limit {
		return errFull
	}
	if cap(in.buf)-len(in.buf) < step/4 && cap(in.buf) < max(step, limit) {
		in.buf = append(make([]byte, 0, max(step, min(2*len(in.buf), limit))), in.buf...)
	}
	n, err := in.conn.Read(in.buf[len(in.buf):min(cap(in.buf), limit)])
	in.buf = in.buf[:len(in.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}

// take removes n bytes that are held. Their room goes with the last of them.
func (in *inlet) take(n int) []byte {
	b := in.buf[:n]
	if in.buf = in.buf[n:]; len(in.buf) == 0 {
		in.buf = nil
	}
	return b
}

// protocol reads until it can tell what is spoken.
func (in *inlet) protocol() (protocol, error) {
	var s sniffer
	for {
		if p := s.classify(in.buf); p != undecided {
			return p, nil
		}
		if err := in.fill(maxHead + maxBlank); err != nil {
			return undecided, err
		}
	}
}

// hello reads the name in a TLS hello, which stays held.
func (in *inlet) hello() (string, error) {
	var r records
	for !r.complete(in.buf) {
		switch err := in.fill(maxHelloBytes); {
		case errors.Is(err, errFull):
			return "", errHelloLong
		case err != nil:
			return "", err
		}
	}
	return parseHello(in.buf)
}

// later reads the head of a request that is not the first of its connection. The
// client may let any time pass before it begins one, and then not leave it half
// said.
func (in *inlet) later() (request, error) {
	if len(in.buf) == 0 {
		if err := in.fill(maxHead); err != nil {
			return request{}, err
		}
	}
	in.until(time.Now().Add(helloTimeout))
	defer in.until(time.Time{})
	r, err := in.request(false)
	if ranOut(err) {
		err = errHeadSlow
	}
	return r, err
}

// request reads the head of a request. It gives io.EOF where the sender has ended
// between two requests.
func (in *inlet) request(upgrade bool) (request, error) {
	checked := 0
	for {
		for ; checked < len(in.buf); checked++ {
			if in.buf[checked] != '\n' {
				continue
			}
			if checked == 0 || in.buf[checked-1] != '\r' {
				return request{}, errHead
			}
			if checked == 1 {
				return request{}, errHead // an empty line where a request begins
			}
			if bytes.HasSuffix(in.buf[:checked+1], []byte("\r\n\r\n")) {
				return parseHead(in.take(checked+1), upgrade)
			}
		}
		switch err := in.fill(maxHead); {
		case errors.Is(err, errFull):
			return request{}, errHeadLong
		case errors.Is(err, io.EOF) && len(in.buf) > 0:
			return request{}, errHead
		case err != nil:
			return request{}, err
		}
	}
}

// line reads a line and takes it, without its end.
func (in *inlet) line(limit int, long refusal) ([]byte, error) {
	checked := 0
	for {
		if end := bytes.IndexByte(in.buf[checked:], '\n'); checked+end > limit {
			return nil, long
		} else if end >= 0 {
			line, ok := bytes.CutSuffix(in.take(checked+end+1), []byte("\r\n"))
			if !ok || bytes.IndexByte(line, '\r') >= 0 {
				return nil, errChunk
			}
			return line, nil
		}
		if checked = len(in.buf); checked > limit {
			return nil, long
		}
		if err := in.fill(limit + 1); err != nil {
			return nil, unexpected(err)
		}
	}
}

// copyN passes on n bytes.
func (in *inlet) copyN(dst io.Writer, n int64) (int64, error) {
	held := in.take(int(min(n, int64(len(in.buf)))))
	if len(held) > 0 {
		if k, err := dst.Write(held); err != nil {
			return int64(k), err
		}
	}
	if int64(len(held)) == n {
		return n, nil
	}
	in.buf = nil
	k, err := io.CopyN(dst, in.conn, n-int64(len(held)))
	return k + int64(len(held)), unexpected(err)
}

// copyAll passes on everything until the end.
func (in *inlet) copyAll(dst io.Writer) (int64, error) {
	held := in.buf
	in.buf = nil
	if len(held) > 0 {
		if k, err := dst.Write(held); err != nil {
			return int64(k), err
		}
	}
	k, err := io.Copy(dst, in.conn)
	return k + int64(len(held)), err
}

// body passes on the body of a request.
func (in *inlet) body(dst io.Writer, r request) (int64, error) {
	if !r.chunked {
		return in.copyN(dst, r.length)
	}
	var sent int64
	for {
		line, err := in.line(maxChunkLine, errChunk)
		if err != nil {
			return sent, err
		}
		size, err := parseChunk(line)
		if err != nil {
			return sent, err
		}
		if size == 0 {
			return sent, in.trailer(dst)
		}
		n, err := in.chunk(dst, size)
		sent += n
		if err != nil {
			return sent, err
		}
	}
}

// chunk passes on one chunk, in one piece where it is all there.
func (in *inlet) chunk(dst io.Writer, size int64) (int64, error) {
	if whole := size + 2; int64(len(in.buf)) >= whole {
		piece := in.take(int(whole))
		if !bytes.HasSuffix(piece, []byte("\r\n")) {
			return 0, errChunk
		}
		n, err := dst.Write(append(fmt.Appendf(nil, "%x\r\n", size), piece...))
		return int64(n), err
	}
	if _, err := fmt.Fprintf(dst, "%x\r\n", size); err != nil {
		return 0, err
	}
	n, err := in.copyN(dst, size)
	if err != nil {
		return n, err
	}
	if end, err := in.line(2, errChunk); err != nil || len(end) > 0 {
		return n, errors.Join(err, errChunk)
	}
	_, err = dst.Write([]byte("\r\n"))
	return n, err
}

// trailer reads the headers behind the last chunk, which are not passed on: no
// server needs them, and some let them overrule those before the body. They have as
// long as a head.
func (in *inlet) trailer(dst io.Writer) error {
	in.until(time.Now().Add(helloTimeout))
	defer in.until(time.Time{})
	for left := maxTrailer; ; {
		line, err := in.line(left, errHeadLong)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			_, err = dst.Write([]byte("0\r\n\r\n"))
			return err
		}
		if _, _, err := field(string(line)); err != nil {
			return err
		}
		left -= len(line)
	}
}

// unexpected makes of an end what it is within something: an error.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ranOut reports whether an error says that the time is over.
func ranOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
