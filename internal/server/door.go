package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/gateway"
	"github.com/pandastack/pandastack/internal/httpapi"
)

// door is what answers while the parts behind it are made. /healthz and /readyz
// are answered at once; any other request waits for the API.
type door struct {
	api     atomic.Pointer[httpapi.API]
	gateway *gateway.Gateway // set before api
	opened  chan struct{}
	waiting atomic.Pointer[string] // what for
}

func newDoor() *door {
	d := &door{opened: make(chan struct{})}
	d.say("starting")
	return d
}

func (d *door) say(what string) { d.waiting.Store(&what) }

func (d *door) open(a *httpapi.API, g *gateway.Gateway) {
	d.gateway = g
	d.api.Store(a)
	close(d.opened)
}

// ServeHTTP passes on to the API and to previews once they are there.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a := d.api.Load(); a != nil {
		d.pass(a, w, r)
		return
	}
	switch r.URL.Path {
	case "/healthz":
		answer(w, http.StatusOK, httpapi.NewRequestID(), api.Health{Status: "ok"})
		return
	case "/readyz":
		answer(w, http.StatusServiceUnavailable, httpapi.NewRequestID(), api.Health{Status: "starting", Detail: *d.waiting.Load()})
		return
	}
	select {
	case <-d.opened:
		d.pass(d.api.Load(), w, r)
	case <-r.Context().Done():
		id := httpapi.NewRequestID()
		e := *api.AsError(context.Cause(r.Context()))
		e.RequestID = id
		e = *e.With("retryable", true)
		w.Header().Set("Retry-After", strconv.Itoa(2))
		answer(w, http.StatusServiceUnavailable, id, api.Envelope{Error: &e})
	}
}

// pass chooses by the host of a request who answers it.
func (d *door) pass(a *httpapi.API, w http.ResponseWriter, r *http.Request) {
	if d.gateway != nil && d.gateway.Owns(r.Host) {
		d.gateway.ServeHTTP(w, r)
		return
	}
	a.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, id string, v any) {
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone is no error of ours
}
