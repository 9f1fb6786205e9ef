package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// eventStream writes server-sent events. The answer begins with the first
// event, so that a failure before it is an ordinary error answer. It has no
// write timeout: a client that reads slowly slows the source down.
type eventStream struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	rc     *http.ResponseController
	buf    bytes.Buffer
	opened bool
	stop   chan struct{}
	done   sync.WaitGroup
}

func newEventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w: w, rc: http.NewResponseController(w), stop: make(chan struct{})}
}

// during sends a comment after every pause of keepAlive while the source of the
// events runs, and none once it has ended or panicked.
func (s *eventStream) during(keepAlive time.Duration, source func() error) error {
	s.done.Go(func() { s.keepAlive(keepAlive) })
	defer s.done.Wait()
	defer close(s.stop)
	return source()
}

// open begins the answer without an event.
func (s *eventStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked()
}

func (s *eventStream) openLocked() error {
	if s.opened {
		return nil
	}
	s.opened = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must pass events on at once
	s.w.WriteHeader(http.StatusOK)
	return s.rc.Flush()
}

// send writes one event. An id of 0 is left out.
func (s *eventStream) send(name string, id int64, data any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString("event: ")
	s.buf.WriteString(name)
	if id != 0 {
		s.buf.WriteString("\nid: ")
		s.buf.WriteString(strconv.FormatInt(id, 10))
	}
	s.buf.WriteString("\ndata: ")
	enc := json.NewEncoder(&s.buf) // JSON has no line breaks inside, and Encode ends with one
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return err
	}
	s.buf.WriteByte('\n')
	return s.writeLocked(s.buf.Bytes())
}

func (s *eventStream) writeLocked(p []byte) error {
	if err := s.openLocked(); err != nil {
		return err
	}
	if _, err := s.w.Write(p); err != nil {
		return err
	}
	return s.rc.Flush()
}

func (s *eventStream) keepAlive(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.mu.Lock()
			if s.opened {
				// A failed write is seen by the next event, and the client's
				// leaving ends the request's context.
				_ = s.writeLocked([]byte(": keep-alive\n\n"))
			}
			s.mu.Unlock()
		}
	}
}
