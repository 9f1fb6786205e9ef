package host

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Client is a Host on another machine, spoken to through its Handler. A host
// that does not answer gives host.unreachable; how long to wait for an answer is
// the business of each call's context.
type Client struct {
	addr   string // host:port
	tls    *tls.Config
	dialer *net.Dialer
	http   *http.Client

	mu      sync.Mutex
	closed  bool
	cancels map[int]context.CancelFunc // of streams of changes
	next    int
	streams sync.WaitGroup
}

var _ Host = (*Client)(nil)

// NewClient makes a client for the host that listens at addr (host:port). With
// a nil config, for tests, it speaks without TLS.
func NewClient(addr string, config *tls.Config) *Client {
	c := &Client{addr: addr, cancels: map[int]context.CancelFunc{}}
	// A host that lost power answers nothing: a dead connection is noticed
	// in half a minute.
	c.dialer = &net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4},
	}
	if config != nil {
		c.tls = config.Clone()
		c.tls.NextProtos = []string{"http/1.1"} // the only one that can be upgraded
		if c.tls.ServerName == "" {
			c.tls.ServerName, _, _ = net.SplitHostPort(addr)
		}
		if c.tls.ClientSessionCache == nil {
			c.tls.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
			DialTLSContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
			MaxIdleConnsPerHost:   64,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: awaitContinue,
			DisableCompression:    true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close ends streams of changes and drops idle connections. Connections that
// Dial gave go on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, cancel := range c.cancels {
		cancel()
	}
	c.mu.Unlock()
	c.streams.Wait()
	c.http.CloseIdleConnections()
	return nil
}

// Info implements Host.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, http.MethodGet, "info", nil, nil)
}

// Create implements Host.
func (c *Client) Create(ctx context.Context, spec Spec) (Sandbox, error) {
	return call[Sandbox](ctx, c, http.MethodPost, "create", nil, spec)
}

// Get implements Host.
func (c *Client) Get(ctx context.Context, id string) (Sandbox, error) {
	return call[Sandbox](ctx, c, http.MethodGet, "get", byID(id), nil)
}

// List implements Host.
func (c *Client) List(ctx context.Context) ([]Sandbox, error) {
	return call[[]Sandbox](ctx, c, http.MethodGet, "list", nil, nil)
}

// Delete implements Host.
func (c *Client) Delete(ctx context.Context, id string) error { return c.act(ctx, "delete", id) }

// Pause implements Host.
func (c *Client) Pause(ctx context.Context, id string) error { return c.act(ctx, "pause", id) }

// Resume implements Host.
func (c *Client) Resume(ctx context.Context, id string) error { return c.act(ctx, "resume", id) }

// Usage implements Host.
func (c *Client) Usage(ctx context.Context, id string) (api.Metrics, error) {
	return call[api.Metrics](ctx, c, http.MethodGet, "usage", byID(id), nil)
}

// Usages implements Host.
func (c *Client) Usages(ctx context.Context) (map[string]api.Metrics, error) {
	return call[map[string]api.Metrics](ctx, c, http.MethodGet, "usages", nil, nil)
}

// SetNetwork implements Host.
func (c *Client) SetNetwork(ctx context.Context, id string, network Network) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "set-network", byID(id), network)
	return err
}

// NetworkLog implements Host.
func (c *Client) NetworkLog(ctx context.Context, id string, since int64, limit int) (api.ConnectionLog, error) {
	query := byID(id)
	query.Set("since", strconv.FormatInt(since, 10))
	query.Set("limit", strconv.Itoa(limit))
	return call[api.ConnectionLog](ctx, c, http.MethodGet, "network-log", query, nil)
}

// Templates implements Host.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	return call[[]api.Template](ctx, c, http.MethodGet, "templates", nil, nil)
}

func (c *Client) act(ctx context.Context, op, id string) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, op, byID(id), nil)
	return err
}

func byID(id string) url.Values { return url.Values{"id": {id}} }

// call does one operation that has one answer.
func call[T any](ctx context.Context, c *Client, method, op string, query url.Values, in any) (out T, err error) {
	resp, err := c.send(ctx, method, op, query, in)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := decodeAnswer(resp, &out); err != nil {
		var zero T
		return zero, c.failure(ctx, err)
	}
	return out, nil
}

func (c *Client) send(ctx context.Context, method, op string, query url.Values, in any) (*http.Response, error) {
	req, err := c.request(ctx, method, op, query)
	if err != nil {
		return nil, err
	}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, api.Wrap(api.CodeInternal, err, "the request to the host cannot be encoded")
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", contentJSON)
	} else {
		// Without a body every operation may be repeated, so one that met a
		// connection that the host had closed is sent again by the transport.
		req.Header["Idempotency-Key"] = nil
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	return resp, nil
}

func (c *Client) request(ctx context.Context, method, op string, query url.Values) (*http.Request, error) {
	u := url.URL{Scheme: "http", Host: c.addr, Path: pathPrefix + op, RawQuery: query.Encode()}
	if c.tls != nil {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, api.Wrap(api.CodeInternal, err, "the address of the host is not valid")
	}
	return req, nil
}

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", c.addr)
	if err != nil || c.tls == nil {
		return conn, err
	}
	t := tls.Client(conn, c.tls)
	ctx, cancel := context.WithTimeout(ctx, c.dialer.Timeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return t, nil
}

// failure gives a code to what went wrong between here and the host's answer.
func (c *Client) failure(ctx context.Context, err error) error {
	var e *api.Error
	isCoded := errors.As(err, &e)
	// A host may still manage to answer that its call was given up, since we
	// gave it up: then the cause is here.
	if ctx.Err() != nil && (!isCoded || e.Code == api.CodeCanceled || e.Code == api.CodeTimeout) {
		return coded(ctx.Err())
	}
	if isCoded {
		return e
	}
	return api.Wrap(api.CodeHostUnreachable, err, "the host at %s does not answer", c.addr)
}

// Dial implements Host. The connection has CloseWrite.
func (c *Client) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	query := byID(id)
	query.Set("port", strconv.Itoa(port))
	req, err := c.request(ctx, http.MethodGet, "dial", query)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", upgradeName)
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	ended := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	s, err := upgrade(conn, req)
	if !ended() && err == nil {
		err = ctx.Err() // the deadline in the past is set, or is about to be
	}
	if err != nil {
		conn.Close()
		return nil, c.failure(ctx, err)
	}
	return s, nil
}

func upgrade(conn net.Conn, req *http.Request) (net.Conn, error) {
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	buffered := bufio.NewReader(conn)
	resp, err := http.ReadResponse(buffered, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, decodeFailure(resp, io.LimitReader(resp.Body, maxRequest))
	}
	return &stream{conn, buffered}, nil
}

// stream is a connection of which some bytes may have been read already.
type stream struct {
	net.Conn
	buffered *bufio.Reader
}

func (s *stream) Read(p []byte) (int, error) {
	if s.buffered.Buffered() == 0 {
		return s.Conn.Read(p)
	}
	return s.buffered.Read(p)
}

// CloseWrite says that no more will be written; reading goes on.
func (s *stream) CloseWrite() error {
	if half, ok := s.Conn.(closeWriter); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
