// Package gateway carries user traffic: requests to hosts {port}-{id}.{domain}
// go to what listens on that port in that sandbox, which is woken for them.
//
// # Rules
//
// Nothing is buffered: bytes go on as they come, both ways, and a connection may
// be silent for as long as both ends like. A request's tokens and our cookie
// stay outside, and so does what a client says of itself in X-Forwarded-*,
// unless it is a proxy that is trusted. A cookie admits the preview's own pages
// alone, since all previews are one site to a browser. Who may not open a
// preview learns nothing of what is behind it, and wakes nobody. A connection
// leads to the machine that it was made to: none of before is used after a
// sandbox has slept or was taken back. Half a connection does not stay: when one
// end has nothing more to send, the other may be silent for a minute. No sandbox
// has more than a bounded number of requests under way, so that one cannot take
// what all need.
package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Sandboxes is what the gateway asks of the rules; *control.Service is it. Its
// errors carry api codes, of which sandbox.not_found is a host that is nobody's.
type Sandboxes interface {
	// PortVisibility says who may open a preview, without waking the sandbox.
	PortVisibility(ctx context.Context, id string, port int) (api.Visibility, error)
	// Awake wakes a sleeping sandbox. The era is another whenever connections
	// lead to another machine than before.
	Awake(ctx context.Context, id string) (era uint64, err error)
	// DialPort connects to a port. sandbox.invalid_state with the detail port
	// says that nothing listens there.
	DialPort(ctx context.Context, id string, port int) (net.Conn, error)
	// Use says that a request has begun, and done that it ended.
	Use(id string) (done func())
	// Touch says that a request under way moved a byte.
	Touch(id string)
}

// Config is what a gateway is made of. All but TrustedProxies must be set.
type Config struct {
	Domain       string // that previews are below, in lower case
	Sandboxes    Sandboxes
	Signer       *Signer
	Log          *slog.Logger
	NewRequestID func() string
	// TrustedProxies are the addresses of proxies in front of the server: what
	// they say in X-Forwarded-* is believed.
	TrustedProxies []netip.Prefix
}

// Gateway is an http.Handler for the hosts that it owns.
type Gateway struct {
	Config
	signer    *Signer
	transport *http.Transport
	grpc      *http.Transport
	active    sync.WaitGroup
	crowds    crowds
	linger    time.Duration
}

// New makes a gateway. Close ends what it keeps open.
func New(c Config) *Gateway {
	g := &Gateway{Config: c, signer: c.Signer, linger: linger}
	g.transport, g.grpc = g.newTransport(false), g.newTransport(true)
	return g
}

// Owns reports whether requests for a host go to the gateway.
func (g *Gateway) Owns(host string) bool {
	label, ok := below(host, g.Domain)
	return ok && !strings.EqualFold(label, apiLabel)
}

// Match takes the host of a request apart. ok is false for a host that is not the
// gateway's; an error is for one that is, but names no preview.
func (g *Gateway) Match(host string) (port int, id string, ok bool, err error) {
	if !g.Owns(host) {
		return 0, "", false, nil
	}
	return ParseHost(host, g.Domain)
}

// Wait returns when no request is under way, upgraded connections included, or
// with the error of ctx. None may begin after it was called.
func (g *Gateway) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { g.active.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close drops the connections that are kept. It comes after the last request.
func (g *Gateway) Close() {
	g.transport.CloseIdleConnections()
	g.grpc.CloseIdleConnections()
}

// visit is one request on its way.
type visit struct {
	id     string
	port   int
	peer   peer
	grpc   bool
	failed func(error) // answers instead of the sandbox
}

// ServeHTTP answers with what listens in the sandbox, or says why it cannot.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.active.Add(1)
	defer g.active.Done()
	from := time.Now()
	requestID := g.NewRequestID()
	port, id, ok, err := g.Match(r.Host)
	if err == nil && !ok {
		err = noPreview("it is not below the domain of previews")
	}
	v := &visit{id: id, port: port, peer: g.peerOf(r), grpc: isGRPC(r)}
	v.failed = func(err error) { g.refuse(w, r, requestID, v, from, err) }
	if err == nil && r.Method == http.MethodConnect {
		err = api.Errorf(api.CodeMethodNotAllowed, "a preview is no proxy")
	}
	if err != nil {
		v.failed(err)
		return
	}
	if answered, err := g.pass(w, r, v); err != nil {
		v.failed(err)
		return
	} else if answered {
		return
	}
	g.serve(w, r, v)
}

// pass decides whether a request may go on to the sandbox. answered is true when
// the client was told to come again by an address without a token.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, v *visit) (answered bool, err error) {
	visibility, err := g.Sandboxes.PortVisibility(r.Context(), v.id, v.port)
	if err != nil {
		return false, err
	}
	given := takeCredentials(r)
	var token string
	var expires time.Time
	switch visibility {
	case api.PreviewPublic:
	case api.PreviewPrivate:
		if token, expires, err = g.admit(given, v.peer.ownPage(r), v.id, v.port, time.Now()); err != nil {
			return false, err
		}
	default:
		return false, api.Errorf(api.CodeForbidden, "the preview of port %d is closed", v.port).
			WithHint("Expose the port again: POST /v1/sandboxes/{id}/ports.")
	}
	if len(given.query) == 0 || !navigates(r) {
		return false, nil
	}
	if token != "" {
		welcome(w, token, expires, v.peer.proto == "https")
	}
	sendOn(w, r)
	return true, nil
}

// serve wakes the sandbox and passes the request on.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, v *visit) {
	if !g.crowds.enter(v.id) {
		v.failed(crowded(v.id))
		return
	}
	defer g.crowds.leave(v.id)
	defer g.Sandboxes.Use(v.id)()
	era, err := g.Sandboxes.Awake(r.Context(), v.id)
	if err != nil {
		v.failed(asleep(err))
		return
	}
	if r.Header.Get("Upgrade") != "" {
		w = &upgrading{ResponseWriter: w, linger: g.linger}
	}
	if r.ProtoMajor == 1 {
		// The answer may begin before the request has ended.
		_ = http.NewResponseController(w).EnableFullDuplex() // a writer that cannot, reads first
	}
	g.proxy(v, era).ServeHTTP(w, r)
}
