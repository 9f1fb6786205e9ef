//go:build linux

package guestd

import (
	"context"
	"net/http"
)

// A stream ends with three pieces: its last event, the protocol's end of the
// stream, and HTTP's end of the answer. Each would be a packet, and a wake-up of
// whoever reads it; with the flush held they leave together when the handler
// returns.

// lastFlush is an answer whose flushes can be held. It is for one goroutine, as
// every answer is.
type lastFlush struct {
	http.ResponseWriter
	held bool
}

type lastFlushKey struct{}

// withLastFlush lets holdFlush reach the answers of a handler.
func withLastFlush(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &lastFlush{ResponseWriter: w}
		next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), lastFlushKey{}, out)))
	})
}

// holdFlush says that all that follows comes at once.
func holdFlush(ctx context.Context) {
	if out, ok := ctx.Value(lastFlushKey{}).(*lastFlush); ok {
		out.held = true
	}
}

// Flush sends what is buffered.
func (w *lastFlush) Flush() {
	if !w.held {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // a client that is gone is seen by the next write
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *lastFlush) Unwrap() http.ResponseWriter { return w.ResponseWriter }
