// Package httpapi is the public HTTP API: it decodes requests, asks control,
// and writes answers and errors. Its types come from package api, and the
// OpenAPI document is generated from the same code that serves.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/gateway"
	"github.com/pandastack/pandastack/internal/lsp"
)

// Limits of a request that is not a stream.
const (
	maxJSONBody     = 1 << 20          // bytes
	bodyReadTimeout = 30 * time.Second // for a whole JSON body
)

// Deps is what the API is made of. Control, Keys and Log must be set.
type Deps struct {
	Control  Control
	Keys     Keys
	Log      *slog.Logger
	Registry *prometheus.Registry // where metrics go; nil: a registry of its own
	Version  api.Version

	// States counts the sandboxes by state for /metrics; nil: not exported.
	States func(ctx context.Context) (map[string]int, error)

	// SignSecret is what signed URLs are made with, the same for all servers of
	// one database; empty: none are made.
	SignSecret []byte

	// Origins are those of the web pages that may call the API, as a browser
	// writes them (https://app.example.com), or AnyOrigin; empty: none.
	Origins []string

	// SSH is how SSH is reached; nil: it is not served.
	SSH *SSH

	// Previews is where previews are, and Signer makes the tokens of private
	// ones; nil: no tokens are made.
	Previews gateway.Address
	Signer   *gateway.Signer

	// KeepAlive is the pause after which an idle stream sends a comment or a
	// ping; zero: 15 s.
	KeepAlive time.Duration
}

// API serves the HTTP API.
type API struct {
	Deps
	mux     *http.ServeMux
	huma    huma.API
	metrics *metrics
	active  inflight
	models  func() *modelDoor // made at the first use
	door    atomic.Pointer[modelDoor]
	lsp     lsp.Pool
}

// New makes the API. It starts nothing.
func New(deps Deps) *API {
	if deps.Registry == nil {
		deps.Registry = prometheus.NewRegistry()
	}
	if deps.KeepAlive <= 0 {
		deps.KeepAlive = 15 * time.Second
	}
	installErrors()
	a := &API{Deps: deps, mux: http.NewServeMux()}
	a.metrics = newMetrics(deps.Registry)
	a.models = sync.OnceValue(func() *modelDoor {
		d := a.newModelDoor()
		a.door.Store(d)
		return d
	})
	a.huma = humago.New(a.mux, humaConfig(deps.Version.Version))
	for _, r := range a.routes() {
		a.register(r)
	}
	a.serveDocument()
	a.mux.HandleFunc("/", a.noRoute)
	return a
}

// Wait returns when no request is being served, streams and WebSockets
// included, or with the error of ctx.
func (a *API) Wait(ctx context.Context) error { return a.active.wait(ctx) }

// Close ends what outlives requests: sessions and language servers. It is for
// after the last request.
func (a *API) Close() {
	a.lsp.Close()
	if d := a.door.Load(); d != nil {
		d.close()
	}
}

// inflight counts requests, and unlike a WaitGroup may be waited for while
// one begins.
type inflight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n becomes 0; made by the first who waits
}

func (f *inflight) begin() {
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
}

func (f *inflight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

func (f *inflight) wait(ctx context.Context) error {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
