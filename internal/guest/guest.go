// Package guest talks to the daemon inside a sandbox (package guestd) from its
// host: processes, files, logs, and the renewal of a restored machine.
//
// What is inside a sandbox is hostile, the daemon included: every answer is
// bounded in size before it is read, names are checked before they are passed
// on, and text of an error is cut to a line. Times are bounded by the caller's
// context. All errors are *api.Error: file.* and process.* for what the request
// asked for, sandbox.died when nobody answers any more.
package guest

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest/envdpb"
)

// Bounds of what the daemon may send.
const (
	maxMessage = 4 << 20  // one message of a service
	maxHeaders = 64 << 10 // of one answer
	maxBody    = 64 << 10 // of an answer that is not a file
)

// base is the address of every request. The name is never looked up: the dialer
// alone decides who answers.
const base = "http://guest"

// CodePort is where code contexts are served to clients of the code interpreter
// protocol, in machines whose image asks for it.
const CodePort = 49999

const headerToken = "X-Access-Token"

// Dialer connects to a TCP port inside a sandbox.
type Dialer func(ctx context.Context, port int) (net.Conn, error)

// Client talks to the daemon of one sandbox. Its methods may be called
// concurrently. It connects when it is first used and keeps connections for a
// while; Close drops them, after which it connects anew.
type Client struct {
	transport *http.Transport
	http      *http.Client
	token     atomic.Pointer[string]
	proc      envdpb.ProcessClient
	fs        envdpb.FilesystemClient
}

// NewClient makes a client that shows token to the daemon.
func NewClient(dial Dialer, token string) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx, api.InternalPort)
			if err != nil {
				return nil, err
			}
			return &watched{Conn: conn, closed: make(chan struct{})}, nil
		},
		DisableCompression:     true, // the way to the guest is memory
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaders,
		WriteBufferSize:        32 << 10,
		ReadBufferSize:         32 << 10,
	}
	c := &Client{
		transport: t,
		http: &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.token.Store(&token)
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithAcceptCompression("gzip", nil, nil),
	}
	c.proc = envdpb.NewProcessClient(c.http, base, opts...)
	c.fs = envdpb.NewFilesystemClient(c.http, base, opts...)
	return c
}

// watched is a connection that says when it was closed.
type watched struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// ReadFrom writes the pieces of a body as they are. A transport that knows the
// size of a body asks for it through a limit.
func (w *watched) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if p, ok := l.R.(*pieces); ok {
			n, err := p.writeTo(w.Conn, l.N)
			l.N -= n
			return n, err
		}
	}
	return io.Copy(struct{ io.Writer }{w.Conn}, r)
}

// Close drops the pooled connections. Calls under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// request makes the request of a call, for a user of the sandbox; empty is the
// default one.
func request[T any](c *Client, user string, msg *T) *connect.Request[T] {
	r := connect.NewRequest(msg)
	r.Header().Set(headerToken, *c.token.Load())
	if user != "" {
		r.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	return r
}

// do sends a plain request. The answer is a success; its body is the caller's
// to close.
func (c *Client) do(ctx context.Context, method, target string, body io.Reader, header http.Header) (*http.Response, error) {
	return c.doFor(ctx, areaFile, method, target, body, header)
}

// doFor is do for a request about something else than files.
func (c *Client) doFor(ctx context.Context, a area, method, target string, body io.Reader, header http.Header) (*http.Response, error) {
	return c.doSized(ctx, a, method, target, body, -1, header)
}

// doSized is doFor for a body of size bytes, if that is not negative.
func (c *Client) doSized(ctx context.Context, a area, method, target string, body io.Reader, size int64, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, base+target, body)
	if err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, err, "the request to the sandbox cannot be made")
	}
	if size == 0 {
		req.Body = http.NoBody // a body of length 0 means unknown to the transport
	} else if size > 0 {
		req.ContentLength = size
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set(headerToken, *c.token.Load())
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what came is enough for a message
	return nil, statusError(resp.StatusCode, resp.Header.Get(headerErrno), text, a)
}

// Health asks whether the daemon answers.
func (c *Client) Health(ctx context.Context) error {
	resp, err := c.do(ctx, http.MethodGet, "/health", nil, nil)
	if err != nil {
		return err
	}
	return finish(resp)
}

// finish reads an answer to its end, so that the connection can be used again.
func finish(resp *http.Response) error {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)) // the status was the answer
	return resp.Body.Close()
}
