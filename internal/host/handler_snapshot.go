package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

func (s *Handler) fork(r *http.Request) (any, error) {
	var children []Spec
	if err := decodeStrict(r.Body, &children); err != nil {
		return nil, err
	}
	return s.host.Fork(r.Context(), id(r), children)
}

func (s *Handler) rollback(r *http.Request) (any, error) {
	return s.host.Rollback(r.Context(), id(r), r.URL.Query().Get("snapshot"))
}

func (s *Handler) snapshot(r *http.Request) (any, error) {
	var spec SnapshotSpec
	if err := decodeStrict(r.Body, &spec); err != nil {
		return nil, err
	}
	return s.host.Snapshot(r.Context(), id(r), spec)
}

// export streams a file whose end is in the trailer: an answer that has begun has
// no other place for an error, and without its word the file is not whole.
func (s *Handler) export(w http.ResponseWriter, r *http.Request) {
	file, err := s.host.Export(r.Context(), id(r))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", contentBytes)
	w.Header().Set("Trailer", outcomeTrailer)
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	err = copyOut(&steadyWriter{w, rc}, file)
	if rc.SetWriteDeadline(time.Time{}) != nil || r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody is there to read the trailer
	}
	var e *api.Error
	if err != nil {
		e = s.public(r, err)
	}
	w.Header().Set(outcomeTrailer, encodeOutcome(e))
}

// copyOut copies a file to its end and closes it. A panic of the file is an
// error like others, since what writes answers for panics would write into it.
func copyOut(to io.Writer, file io.ReadCloser) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	_, err = io.CopyBuffer(to, struct{ io.Reader }{file}, make([]byte, 256<<10))
	return err
}

// steadyWriter gives up a client that takes nothing.
type steadyWriter struct {
	w  io.Writer
	rc *http.ResponseController
}

func (s *steadyWriter) Write(p []byte) (int, error) {
	if err := s.rc.SetWriteDeadline(time.Now().Add(stalledAfter)); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

func (s *Handler) importFile(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	memory, err := strconv.ParseBool(query.Get("memory"))
	if err != nil {
		s.fail(w, r, api.Errorf(api.CodeInvalidRequest, "memory: %q is neither true nor false", query.Get("memory")))
		return
	}
	rc := http.NewResponseController(w)
	if err := rc.EnableFullDuplex(); err != nil { // to answer while the file is still coming
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	file := &steadyReader{r: r.Body, rc: rc, gone: cancel}
	out, err := s.host.Import(ctx, SnapshotSpec{ID: query.Get("id"), Memory: memory}, file)
	if err == nil {
		s.write(w, r, http.StatusOK, out)
		return
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause // what the host makes of that does not matter
	}
	w.Header().Set("Connection", "close")
	s.fail(w, r, err)
	if file.began {
		linger(rc, r.Body)
	}
}

// linger takes what a client still sends until it has seen the answer and is
// gone. A connection that is closed before loses the answer on its way.
func linger(rc *http.ResponseController, body io.Reader) {
	if rc.Flush() != nil || rc.SetReadDeadline(time.Now().Add(lingering)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, body)
}

// steadyReader gives up a client that sends nothing. When the client is gone it
// ends the context of those who read: while a body is read, nothing else would.
// It is read by one at a time, and no more once Import has returned.
type steadyReader struct {
	r    io.Reader
	rc   *http.ResponseController
	gone context.CancelCauseFunc

	began bool
}

func (s *steadyReader) Read(p []byte) (int, error) {
	s.began = true
	if err := s.rc.SetReadDeadline(time.Now().Add(stalledAfter)); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	// After the body the server itself reads, to see the client leave.
	if reset := s.rc.SetReadDeadline(time.Time{}); err == nil {
		err = reset
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = api.Wrap(api.CodeCanceled, err, "the file ended before its end")
		s.gone(err)
	}
	return n, err
}
