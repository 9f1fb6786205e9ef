//go:build linux

package guestd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

// maxLogLine is the longest line of the log; a longer one is cut into several.
const maxLogLine = 8 << 10

// lines makes lines of pieces.
type lines struct {
	open map[origin][]byte // what has no newline yet
	emit func(api.LogLine)
	keep func(origin) bool
}

func (l *lines) visit(p piece, data []byte) {
	if !l.keep(p.from) {
		return
	}
	buf := l.open[p.from]
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		n := i
		if i < 0 {
			n = len(data)
		}
		n = min(n, maxLogLine-len(buf))
		buf = append(buf, data[:n]...)
		data = data[n:]
		switch {
		case len(data) > 0 && data[0] == '\n':
			data = data[1:]
		case len(buf) < maxLogLine:
			continue
		}
		l.line(p, buf)
		buf = buf[:0]
	}
	if p.end && len(buf) > 0 {
		l.line(p, buf)
		buf = nil
	}
	if p.end || len(buf) == 0 {
		delete(l.open, p.from)
		return
	}
	l.open[p.from] = buf
}

func (l *lines) line(p piece, text []byte) {
	l.emit(api.LogLine{Time: p.at.UTC(), Stream: p.from.out.String(), PID: p.from.pid, Line: string(bytes.TrimSuffix(text, []byte{'\r'}))})
}

// flush makes lines of what has no newline.
func (l *lines) flush(now time.Time) {
	for from, buf := range l.open {
		l.line(piece{from: from, at: now}, buf)
		delete(l.open, from)
	}
}

// logs answers GET /logs: one api.LogLine in JSON per line.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	tail := -1
	if t := q.Get("tail"); t != "" {
		n, err := strconv.Atoi(t)
		if err != nil || n < 0 {
			httpError(w, http.StatusBadRequest, "tail must be a number of lines")
			return
		}
		tail = n
	}
	stream, follow := q.Get("stream"), q.Get("follow") == "1" || q.Get("follow") == "true"
	switch stream {
	case "", "both", "stdout", "stderr":
	default:
		httpError(w, http.StatusBadRequest, "stream must be stdout, stderr or both")
		return
	}
	var batch []api.LogLine
	l := &lines{
		open: map[origin][]byte{},
		emit: func(line api.LogLine) { batch = append(batch, line) },
		keep: func(o origin) bool { return stream == "" || stream == "both" || o.out.String() == stream },
	}
	next, _, wait := s.ring.read(0, l.visit)
	if !follow {
		l.flush(time.Now())
	}
	if tail >= 0 && len(batch) > tail {
		batch = batch[len(batch)-tail:]
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	for {
		for i := range batch {
			if out.Encode(&batch[i]) != nil {
				return
			}
		}
		if !follow || flush.Flush() != nil {
			return
		}
		batch = batch[:0]
		if wait != nil {
			select {
			case <-r.Context().Done():
				return
			case <-s.stopping:
				return
			case <-wait:
			}
		}
		var lost bool
		if next, lost, wait = s.ring.read(next, l.visit); lost {
			batch = append([]api.LogLine{{Time: time.Now().UTC(), Stream: "system", Line: "output was written faster than it was read; some of it is missing here"}}, batch...)
			clear(l.open) // ends of streams may be among what is missing
		}
	}
}
