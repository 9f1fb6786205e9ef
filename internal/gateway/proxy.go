package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
)

const (
	// idleGuest is how long a connection into a sandbox is kept without a
	// request. Servers drop idle ones after 2 s and more; a request sent on one
	// that is being dropped fails, and one with a body cannot be tried again.
	idleGuest = 1500 * time.Millisecond
	// idlePerPort and idleTotal bound the connections that are kept.
	idlePerPort = 64
	idleTotal   = 4096
	maxHeaders  = 1 << 20 // of an answer
)

// newTransport makes the connections into sandboxes. Each is for one era of one
// sandbox, which is part of the name that it is kept under.
func (g *Gateway) newTransport(h2c bool) *http.Transport {
	t := &http.Transport{
		DialContext:            g.dial,
		DisableCompression:     true, // what the client asks for is what the sandbox is asked for
		MaxIdleConns:           idleTotal,
		MaxIdleConnsPerHost:    idlePerPort,
		IdleConnTimeout:        idleGuest,
		MaxResponseHeaderBytes: maxHeaders,
		WriteBufferSize:        32 << 10,
		ReadBufferSize:         32 << 10,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(!h2c)
	t.Protocols.SetUnencryptedHTTP2(h2c)
	return t
}

// address is what connections of an era to a port are kept under.
func address(v *visit, era uint64) string {
	return v.id + "." + strconv.FormatUint(era, 10) + ":" + strconv.Itoa(v.port)
}

// dial connects to what an address names.
func (g *Gateway) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, number, _ := strings.Cut(addr, ":")
	id, _, _ := strings.Cut(host, ".")
	port, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	conn, err := g.Sandboxes.DialPort(ctx, id, port)
	if err != nil {
		return nil, err
	}
	return &touching{halves: &halves{Conn: conn, linger: g.linger}, touch: func() { g.Sandboxes.Touch(id) }}, nil
}

// touchEvery is how often a connection says that bytes move on it.
const touchEvery = time.Second

// touching is a connection that says when bytes move on it: of a stream that is
// open for long, only those may count as use.
type touching struct {
	*halves
	touch func()
	last  atomic.Int64 // nanoseconds since 1970
}

func (c *touching) moved(n int) {
	if n <= 0 {
		return
	}
	now, last := time.Now().UnixNano(), c.last.Load()
	if now-last >= int64(touchEvery) && c.last.CompareAndSwap(last, now) {
		c.touch()
	}
}

func (c *touching) Read(p []byte) (int, error) {
	n, err := c.halves.Read(p)
	c.moved(n)
	return n, err
}

func (c *touching) Write(p []byte) (int, error) {
	n, err := c.halves.Write(p)
	c.moved(n)
	return n, err
}

// CloseWrite ends one direction.
func (c *touching) CloseWrite() error { return c.halves.CloseWrite() }

// isGRPC reports whether a request can be served over HTTP/2 alone. Other
// requests go in over HTTP/1.1, which every server speaks, whatever they came by.
func isGRPC(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return r.ProtoMajor == 2 && strings.HasPrefix(kind, "application/grpc") && !strings.HasPrefix(kind, "application/grpc-web")
}

// proxy carries one request into the sandbox.
func (g *Gateway) proxy(v *visit, era uint64) *httputil.ReverseProxy {
	p := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", address(v, era)
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also what this program would not write like that
			v.peer.announce(p.Out.Header, p.In.Host)
		},
		Transport:     g.transport,
		FlushInterval: -1,
		BufferPool:    &streamBuffers,
		ErrorHandler:  func(_ http.ResponseWriter, r *http.Request, err error) { v.failed(v.broken(r.Context(), err)) },
		ErrorLog:      slog.NewLogLogger(g.Log.Handler(), slog.LevelDebug),
	}
	p.ModifyResponse = func(r *http.Response) error {
		if r.ContentLength >= largeBody {
			p.BufferPool = &bodyBuffers
		}
		return nil
	}
	if v.grpc {
		p.Transport = g.grpc
	}
	return p
}

// broken gives the failure of a request that was passed on its code.
func (v *visit) broken(ctx context.Context, err error) error {
	var coded *api.Error
	switch {
	case ctx.Err() != nil:
		return api.Wrap(api.CodeCanceled, err, "the client left before the answer")
	case errors.As(err, &coded) && coded.Code == api.CodeSandboxState && coded.Details["port"] != nil:
		return api.Wrap(api.CodePreviewUnreachable, err, "nothing listens on port %d of sandbox %s", v.port, v.id).
			With("sandbox_id", v.id).With("port", v.port)
	case coded != nil:
		return asleep(coded)
	}
	what := "what listens on port %d of sandbox %s did not answer as an HTTP server does"
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		what = "what listens on port %d of sandbox %s closed the connection without an answer"
	}
	return api.Wrap(api.CodePreviewUnreachable, err, what, v.port, v.id).With("sandbox_id", v.id).With("port", v.port).
		WithHint("Look at the output of the program that listens there.")
}

// What bytes are copied through: a stream, which may be open for long, holds
// little memory for that, and a body that is known to be large is in few pieces.
var (
	streamBuffers = bufferPool{size: 32 << 10}
	bodyBuffers   = bufferPool{size: 256 << 10}
)

const largeBody = 1 << 20

type bufferPool struct {
	size int
	pool sync.Pool // of pointers to slices
}

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, b.size)
}

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(p []byte) { b.pool.Put(&p) }

// peer is the client of a request, as the sandbox is told of it.
type peer struct{ chain, host, proto string }

// peerOf says who a request is from. What it says of that itself is believed of
// trusted proxies alone.
func (g *Gateway) peerOf(r *http.Request) peer {
	p := peer{proto: "http"}
	if r.TLS != nil {
		p.proto = "https"
	}
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return p
	}
	p.chain = ip
	if !g.trusts(ip) {
		return p
	}
	if before := r.Header.Values("X-Forwarded-For"); len(before) > 0 {
		p.chain = strings.Join(before, ", ") + ", " + ip
	}
	p.host = r.Header.Get("X-Forwarded-Host")
	if proto := strings.ToLower(r.Header.Get("X-Forwarded-Proto")); proto == "http" || proto == "https" {
		p.proto = proto
	}
	return p
}

func (g *Gateway) trusts(ip string) bool {
	if len(g.TrustedProxies) == 0 {
		return false
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	for _, prefix := range g.TrustedProxies {
		if prefix.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// announce puts the client into a request's headers, out of which the client's
// own words on it were taken before.
func (p peer) announce(h http.Header, host string) {
	if p.chain != "" {
		h.Set("X-Forwarded-For", p.chain)
	}
	if p.host != "" {
		host = p.host
	}
	h.Set("X-Forwarded-Host", host)
	h.Set("X-Forwarded-Proto", p.proto)
}
