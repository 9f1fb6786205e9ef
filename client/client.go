// Package client is the Go SDK of PandaStack: sandboxes, the commands and files
// in them, snapshots, keys and templates, over the public HTTP API.
//
//	c, err := client.New(client.Options{BaseURL: "http://127.0.0.1:8080", APIKey: key})
//	sb, err := c.Sandboxes.Create(ctx, api.CreateSandbox{Template: "base"})
//	defer sb.Delete(ctx)
//	out, err := sb.Command(ctx, "python3", "-c", "print(6*7)").Output()
//
// Errors are *api.Error with the server's code, message, hint and request id;
// two codes are this side's own: client.server_unreachable when nothing
// answers, and client.not_a_pandastack_server when something else does. A
// command that ends with another status than 0 is an *ExitError. errors.Is finds
// the family of a failure too: errors.Is(err, client.ErrNotFound). Where a
// context ended the call, errors.Is finds context.Canceled or
// context.DeadlineExceeded within.
//
// A Client is safe for concurrent use and holds one pool of connections. GET
// requests are tried again a few times when the server does not answer or says
// that trying again can help; other requests only when no connection could be
// made, so that nothing is ever done twice.
package client

import (
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/pandastack/pandastack/api"
)

// DefaultBaseURL is where `pandastack server` listens unless told otherwise.
const DefaultBaseURL = "http://127.0.0.1:8080"

// Options say which server to talk to and as whom. The zero value is the
// server on this machine, without a key.
type Options struct {
	BaseURL string // scheme, host and optional path prefix; default DefaultBaseURL
	APIKey  string // pds_... or the same key as e2b_...

	// HTTPClient replaces the client's own connection pool. Redirects are
	// never followed, whatever it says: they would turn a POST into a GET.
	// A Timeout set on it also ends streams.
	HTTPClient *http.Client

	// Retries is how often a request is tried again: 0 is the default of 2,
	// negative is never.
	Retries int

	// UserAgent goes before the SDK's own in the User-Agent header.
	UserAgent string
}

// Client talks to one server with one key.
type Client struct {
	Sandboxes *Sandboxes
	Snapshots *Snapshots
	Networks  *Networks
	Templates *Templates
	Tokens    *Tokens
	SSHKeys   *SSHKeys

	base      *url.URL
	key       string
	http      *http.Client
	retries   int
	userAgent string
}

// New makes a client. It sends nothing; the only error is a base URL that is
// not one (request.invalid).
func New(o Options) (*Client, error) {
	base, err := parseBase(o.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, key: o.APIKey, retries: o.Retries, userAgent: "pandastack-go"}
	if c.retries == 0 {
		c.retries = 2
	}
	if o.UserAgent != "" {
		c.userAgent = o.UserAgent + " " + c.userAgent
	}
	hc := http.Client{Transport: newTransport()}
	if o.HTTPClient != nil {
		hc = *o.HTTPClient
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &hc
	c.Sandboxes = &Sandboxes{c}
	c.Snapshots = &Snapshots{c}
	c.Networks = &Networks{c}
	c.Templates = &Templates{c}
	c.Tokens = &Tokens{c}
	c.SSHKeys = &SSHKeys{c}
	return c, nil
}

// BaseURL is the address of the server.
func (c *Client) BaseURL() string { return c.base.String() }

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          128,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		// The server compresses nothing, and a sandbox's gzip file must
		// arrive as it is.
		DisableCompression: true,
	}
}

func parseBase(raw string) (*url.URL, error) {
	if raw == "" {
		raw = DefaultBaseURL
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, api.Errorf(api.CodeInvalidRequest, "the server's address %q is not an http or https URL", raw).
			WithHint("Write it in full, such as " + DefaultBaseURL + ".")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, api.Errorf(api.CodeInvalidRequest, "the server's address %q may have no user, query or fragment", u.Redacted())
	}
	return u, nil
}
