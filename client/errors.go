package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
)

// The families of failures, for errors.Is: one for each thing that a program can
// do about a failure, where the code of the *api.Error says what exactly it was.
//
//	if errors.Is(err, client.ErrCapacity) { ... }
const (
	ErrAuth       = api.FamilyAuth       // the key is missing, wrong, revoked, or may not do this
	ErrNotFound   = api.FamilyNotFound   // there is no such sandbox, file, snapshot, key or endpoint
	ErrBadRequest = api.FamilyBadRequest // the request is wrong, or asks for what this server cannot do
	ErrConflict   = api.FamilyConflict   // what it is about is in another state, or its name is taken
	ErrQuota      = api.FamilyQuota      // a limit of the caller's is reached, or too many requests
	ErrCapacity   = api.FamilyCapacity   // no room now: on a host, a disk or in the blob store
	ErrTimeout    = api.FamilyTimeout    // it took longer than was allowed
	ErrServer     = api.FamilyServer     // the server or something it needs failed
	ErrConnection = api.FamilyConnection // no server answers, or what answers is none
)

// errorBodyLimit bounds what is read of the body of a failed request.
const errorBodyLimit = 1 << 20

// responseError makes the error of an answer that is not a success. It reads
// and closes the body.
func (c *Client) responseError(resp *http.Response) *api.Error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyLimit))
	var env api.Envelope
	if json.Unmarshal(body, &env) == nil && env.Error != nil && env.Error.Code != "" {
		if env.Error.RequestID == "" {
			env.Error.RequestID = resp.Header.Get("X-Request-Id")
		}
		return env.Error
	}
	if loc := resp.Header.Get("Location"); loc != "" && resp.StatusCode/100 == 3 {
		return api.Errorf(api.CodeNotAServer, "%s redirects to %s", c.base, loc).
			WithHint("Use the address it redirects to as PANDASTACK_API.")
	}
	return c.notAServer(resp)
}

// notAServer is the error of an answer that no PandaStack server gives.
func (c *Client) notAServer(resp *http.Response) *api.Error {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind == "" {
		kind = "no content type"
	}
	return api.Errorf(api.CodeNotAServer, "what answers at %s is not a PandaStack server (status %d, %s)",
		c.base, resp.StatusCode, kind).With("status", resp.StatusCode)
}

// transportError gives a failure to send or receive its code. A coded error
// within stays as it is.
func (c *Client) transportError(ctx context.Context, err error) error {
	var coded *api.Error
	switch {
	case errors.As(err, &coded):
		return coded
	case errors.Is(ctx.Err(), context.Canceled):
		return api.Wrap(api.CodeCanceled, context.Canceled, "the request was cancelled")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return api.Wrap(api.CodeTimeout, context.DeadlineExceeded, "the server did not answer in the time allowed")
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"), strings.Contains(err.Error(), "malformed HTTP"):
		return api.Wrap(api.CodeNotAServer, err, "what answers at %s does not speak %s", c.base, c.base.Scheme)
	}
	return api.Wrap(api.CodeServerUnreachable, err, "no connection to the server at %s: %s", c.base, reason(err))
}

// reason is the part of a network error that a person needs.
func reason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " does not resolve"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended before the answer did"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "it does not answer"
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// notConnected reports whether err arose before any byte of the request left,
// so that any request may be sent again.
func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
