package lsp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Frame puts the header before a message.
func Frame(msg []byte) []byte {
	out := make([]byte, 0, len(msg)+32)
	out = append(out, "Content-Length: "...)
	out = strconv.AppendInt(out, int64(len(msg)), 10)
	out = append(out, "\r\n\r\n"...)
	return append(out, msg...)
}

// Decoder finds the messages in a stream that comes in pieces of any size. It
// keeps no more than one message and the piece that was written last.
type Decoder struct {
	buf  []byte
	want int  // length of the message under way; -1 while its header is
	open bool // want is set
}

// Write takes the next piece of the stream.
func (d *Decoder) Write(p []byte) { d.buf = append(d.buf, p...) }

// Next gives the next message, or nil when more of the stream is needed. The
// message is valid until the next Write. After an error the stream cannot be
// read on.
func (d *Decoder) Next() ([]byte, error) {
	if !d.open {
		n, size, err := parseHeader(d.buf)
		if err != nil || n == 0 {
			return nil, err
		}
		d.buf, d.want, d.open = d.buf[n:], size, true
	}
	if len(d.buf) < d.want {
		return nil, nil
	}
	msg := d.buf[:d.want:d.want]
	d.buf, d.open = d.buf[d.want:], false
	if len(d.buf) == 0 {
		d.buf = nil // the array goes with the message
	}
	return msg, nil
}

// parseHeader reads the lines before a message, and gives their length and that
// of the message; 0 and no error while they are not complete.
func parseHeader(p []byte) (n, size int, err error) {
	end := bytes.Index(p[:min(len(p), maxHeader)], []byte("\r\n\r\n"))
	if end < 0 {
		if len(p) >= maxHeader {
			return 0, 0, badFrame("a header of more than %d bytes", maxHeader)
		}
		return 0, 0, nil
	}
	size = -1
	for line := range strings.SplitSeq(string(p[:end]), "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return 0, 0, badFrame("a line that is no header")
		}
		if !strings.EqualFold(strings.TrimSpace(name), "Content-Length") {
			continue
		}
		length, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
		if err != nil || size >= 0 {
			return 0, 0, badFrame("a Content-Length that is none")
		}
		if length > maxMessage {
			return 0, 0, api.Errorf(api.CodeTooLarge, "a message of a language server may have %d bytes", maxMessage)
		}
		size = int(length)
	}
	if size < 0 {
		return 0, 0, badFrame("a header without Content-Length")
	}
	return end + len("\r\n\r\n"), size, nil
}

func badFrame(format string, args ...any) error {
	return api.Errorf(api.CodeInvalidRequest, "this is not the framing of a language server: "+format, args...).
		WithHint("Each message is Content-Length: N, an empty line and N bytes of JSON.")
}
