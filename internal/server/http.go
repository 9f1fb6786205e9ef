package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// keepIdle is how long a connection is kept without a request. Proxies in front
// of the server keep theirs for up to 600 s and must not be the ones that are
// surprised: what they send on a connection that is just being closed is lost.
const keepIdle = 650 * time.Second

const (
	// headerWithin is how long a client may take for a TLS handshake or for the
	// headers of a request.
	headerWithin = 10 * time.Second
	// certificateWithin is how long it may take to get the certificate that a
	// handshake waits for, which an authority is asked for at a first visit.
	certificateWithin = 2 * time.Minute
)

// newHTTP makes a server whose requests end with base. It speaks HTTP/2 without
// TLS too, to clients that begin with it, as those of gRPC do.
func (s *server) newHTTP(base context.Context) *http.Server {
	h := &http.Server{
		Handler:           s.door,
		ReadHeaderTimeout: headerWithin,
		IdleTimeout:       keepIdle,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	return h
}

// shutdown ends the HTTP servers when their requests have ended, or when ctx has.
func (s *server) shutdown(ctx context.Context) {
	var ending sync.WaitGroup
	for _, h := range []*http.Server{s.http, s.https} {
		if h == nil {
			continue
		}
		ending.Go(func() {
			if err := h.Shutdown(ctx); err != nil {
				_ = h.Close() // the connections that are left; each has had its time
			}
		})
	}
	ending.Wait()
}
