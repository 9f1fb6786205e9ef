package httpapi

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// request is what is known of one request while it is served.
type request struct {
	id       string
	identity auth.Identity
	err      error // why it failed, in full
}

type requestKey struct{}

// requestOf gives the request within a context, or nil outside of one.
func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// who is the caller of an authorised request.
func who(ctx context.Context) auth.Identity { return requestOf(ctx).identity }

// NewRequestID names a request: req_ and 12 hex digits.
func NewRequestID() string {
	var b [6]byte
	rand.Read(b[:])
	return "req_" + hex.EncodeToString(b[:])
}

// ServeHTTP gives every request an id, a line in the log, a place in the
// metrics and an answer even when its handler panics.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.active.begin()
	defer a.active.end()
	start := time.Now()
	req := &request{id: NewRequestID()}
	w.Header().Set("X-Request-Id", req.id)
	out := &recorder{ResponseWriter: w}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
	aborted := a.serve(out, r, req)
	took := time.Since(start)
	a.metrics.request(r, out.status())
	a.logRequest(r, req, out, took)
	if aborted {
		// What was sent is not whole; only a cut connection tells the client.
		panic(http.ErrAbortHandler)
	}
}

// serve runs the handler and reports whether it stopped in the middle of an
// answer.
func (a *API) serve(out *recorder, r *http.Request, req *request) (aborted bool) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		aborted = out.code != 0
		if v == http.ErrAbortHandler || r.Context().Err() != nil {
			aborted = true
			return
		}
		a.Log.Error("handler panicked", "request_id", req.id, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		if !aborted {
			a.fail(out, r, api.Wrap(api.CodeInternal, fmt.Errorf("panic: %v", v), "something went wrong on the server"))
		}
	}()
	if !a.cors(out, r) {
		a.mux.ServeHTTP(out, r)
	}
	return false
}

func (a *API) logRequest(r *http.Request, req *request, out *recorder, took time.Duration) {
	level := slog.LevelDebug
	status := out.status()
	if status >= http.StatusInternalServerError {
		level = slog.LevelInfo
	}
	if !a.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", req.id),
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", status),
		slog.Int64("bytes", out.written),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
	}
	if id := r.PathValue("id"); id != "" {
		attrs = append(attrs, slog.String("sandbox_id", id))
	}
	if id := r.PathValue("snapshot"); id != "" {
		attrs = append(attrs, slog.String("snapshot", clip(id)))
	}
	if req.err != nil {
		attrs = append(attrs, slog.String("error", req.err.Error()))
	}
	a.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// recorder notes the status and size of an answer.
type recorder struct {
	http.ResponseWriter
	code    int
	written int64
}

func (w *recorder) status() int {
	if w.code == 0 {
		return http.StatusOK
	}
	return w.code
}

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 || w.code < 200 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.written += int64(n)
	return n, err
}

// Flush sends what is buffered.
func (w *recorder) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack takes over the connection, for WebSockets.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap lets http.ResponseController reach the deadlines of the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
