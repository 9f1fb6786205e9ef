package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
)

// answerLimit bounds a JSON answer; a buffered exec can hold two streams of
// 16 MiB, each byte escaped to six.
const answerLimit = 256 << 20

// Waits between tries: retryBase doubles each time, less a random part.
// A server's Retry-After is followed up to retryMax.
const (
	retryBase = 100 * time.Millisecond
	retryMax  = 5 * time.Second
)

// request is one call of the API.
type request struct {
	method string
	path   []string // segments, not yet escaped
	query  url.Values
	in     any       // sent as JSON
	body   io.Reader // sent as it is, instead of in
	length int64     // of body; -1 or 0 with a body is unknown
	accept string    // default application/json
	header http.Header
	once   bool   // never tried again
	key    string // Idempotency-Key: the server does it once, however often it is sent
}

func (r request) idempotent() bool { return r.method == http.MethodGet || r.key != "" }

// endpoint gives the URL of an API path.
func (c *Client) endpoint(path []string, query url.Values) *url.URL {
	u := c.base.JoinPath(escapeAll(path)...)
	u.RawQuery = query.Encode()
	return u
}

// checkPath refuses names that would make the request one for something else,
// such as an empty sandbox id.
func checkPath(path []string) error {
	for _, p := range path {
		if p == "" || p == "." || p == ".." {
			return api.Errorf(api.CodeInvalidRequest, "%q is not the name of anything", p)
		}
	}
	return nil
}

func escapeAll(path []string) []string {
	out := make([]string, len(path))
	for i, p := range path {
		out[i] = url.PathEscape(p)
	}
	return out
}

// send makes the call and gives the answer if it is a success. The caller
// closes its body.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	if err := checkPath(r.path); err != nil {
		return nil, err
	}
	var raw []byte
	if r.in != nil {
		var err error
		if raw, err = json.Marshal(r.in); err != nil {
			return nil, api.Wrap(api.CodeInvalidRequest, err, "the request cannot be written as JSON")
		}
	}
	stream := &countedReader{r: r.body}
	for try := 0; ; try++ {
		resp, err := c.try(ctx, r, raw, stream)
		if err == nil && resp.StatusCode/100 == 2 {
			return resp, nil
		}
		again, wait := false, retryBase<<min(try, 5)
		wait -= rand.N(wait / 2)
		if err != nil {
			again = notConnected(err) && stream.n.Load() == 0 || r.idempotent() && ctx.Err() == nil
			err = c.transportError(ctx, err)
			again = again && api.CodeOf(err) == api.CodeServerUnreachable
		} else {
			coded := c.responseError(resp)
			again = r.idempotent() && retryable(resp.StatusCode, coded)
			if s, e := strconv.Atoi(resp.Header.Get("Retry-After")); e == nil && s >= 0 {
				wait = max(wait, time.Duration(s)*time.Second)
			}
			err = coded
		}
		if !again || r.once || try >= c.retries || wait > retryMax {
			return nil, err
		}
		if !sleep(ctx, wait) {
			return nil, c.transportError(ctx, ctx.Err())
		}
	}
}

// retryable reports whether the same request can succeed soon. A fault of the
// server itself is not among them: it rarely heals within a second.
func retryable(status int, err *api.Error) bool {
	if err.Code == api.CodeNotAServer {
		return false
	}
	return status == http.StatusTooManyRequests && err.Code == api.CodeRateLimited ||
		status == http.StatusServiceUnavailable && err.Code != api.CodeHostSetup
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client) try(ctx context.Context, r request, raw []byte, stream *countedReader) (*http.Response, error) {
	var body io.Reader
	switch {
	case r.body != nil:
		body = io.NopCloser(stream)
	case raw != nil:
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.endpoint(r.path, r.query).String(), body)
	if err != nil {
		return nil, api.Wrap(api.CodeInvalidRequest, err, "the request cannot be sent")
	}
	req.Header = c.header()
	if r.body != nil {
		req.ContentLength = -1
		if r.length > 0 {
			req.ContentLength = r.length
		}
		req.Header.Set("Content-Type", "application/octet-stream")
	} else if raw != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	req.Header.Set("Accept", "application/json")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	return c.http.Do(req)
}

func (c *Client) header() http.Header {
	h := http.Header{"User-Agent": {c.userAgent}}
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	return h
}

// call makes a call whose answer is JSON and decodes it into out, unless out
// is nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil || resp.StatusCode == http.StatusNoContent {
		_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, errorBodyLimit))
		if err != nil {
			return c.transportError(ctx, err)
		}
		return nil
	}
	return c.decode(ctx, resp, out)
}

// decode reads a JSON answer.
func (c *Client) decode(ctx context.Context, resp *http.Response, out any) error {
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" {
		return c.notAServer(resp)
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(out)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &mismatch) {
		return api.Wrap(api.CodeNotAServer, err, "the answer of %s is not what this version of the client knows", c.base)
	}
	if err != nil {
		return c.transportError(ctx, err)
	}
	// What follows the value is read so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 64)
	return nil
}

// countedReader knows whether anything was read of it.
type countedReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
