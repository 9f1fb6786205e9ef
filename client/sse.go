package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/pandastack/pandastack/api"
)

// sseLineLimit bounds one line of a stream of events.
const sseLineLimit = 32 << 20

// sseEvent is one server-sent event.
type sseEvent struct {
	name string
	data []byte
}

// sseReader reads server-sent events.
type sseReader struct{ scan *bufio.Scanner }

func newSSEReader(r io.Reader) *sseReader {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 4096), sseLineLimit)
	return &sseReader{scan}
}

// next gives the next event that has data; io.EOF ends the stream. An event
// that the end of the stream cut short is dropped, as the format demands.
func (s *sseReader) next() (sseEvent, error) {
	var ev sseEvent
	for s.scan.Scan() {
		line := s.scan.Bytes()
		if len(line) == 0 {
			if len(ev.data) > 0 {
				return ev, nil
			}
			ev = sseEvent{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "data":
			if ev.data != nil {
				ev.data = append(ev.data, '\n')
			}
			ev.data = append(ev.data, value...)
		}
	}
	if err := s.scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		return sseEvent{}, api.Wrap(api.CodeNotAServer, err, "the server sent an event that is too long")
	} else if err != nil {
		return sseEvent{}, err
	}
	return sseEvent{}, io.EOF
}
