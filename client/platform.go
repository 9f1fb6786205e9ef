package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

// Me says who the key belongs to (auth.invalid_token, auth.token_revoked).
func (c *Client) Me(ctx context.Context) (api.Me, error) {
	var out api.Me
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "me"}}, &out)
	return out, err
}

// Version says what the server runs. It needs no key.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	var out api.Version
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"version"}}, &out)
	return out, err
}

// Health asks whether the server is up. It needs no key.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	return c.health(ctx, "healthz")
}

// Ready asks whether creates from the base template are fast. A server that is
// not there yet answers with a status other than ok and what it waits for,
// which is not an error. It needs no key.
func (c *Client) Ready(ctx context.Context) (api.Health, error) {
	return c.health(ctx, "readyz")
}

func (c *Client) health(ctx context.Context, path string) (api.Health, error) {
	resp, err := c.try(ctx, request{method: http.MethodGet, path: []string{path}}, nil, nil)
	if err != nil {
		return api.Health{}, c.transportError(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, errorBodyLimit))
	if err != nil {
		return api.Health{}, c.transportError(ctx, err)
	}
	var out api.Health
	if json.Unmarshal(body, &out) == nil && out.Status != "" {
		return out, nil
	}
	var env api.Envelope
	if json.Unmarshal(body, &env) == nil && env.Error != nil && env.Error.Code != "" {
		return api.Health{}, env.Error
	}
	return api.Health{}, c.notAServer(resp)
}

// PrometheusMetrics gives the server's counters in the text form of Prometheus. It
// needs no key.
func (c *Client) PrometheusMetrics(ctx context.Context) (string, error) {
	resp, err := c.send(ctx, request{method: http.MethodGet, path: []string{"metrics"}, accept: "text/plain"})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/plain" {
		return "", c.notAServer(resp)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", c.transportError(ctx, err)
	}
	return string(body), nil
}

// Templates finds the images that sandboxes start from.
type Templates struct{ c *Client }

// List gives every template of the server.
func (t *Templates) List(ctx context.Context) ([]api.Template, error) {
	var out api.TemplateList
	err := t.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "templates"}}, &out)
	return out.Templates, err
}

// Get gives one template (template.not_found). While it is being built, its
// Progress and Percent say how far it is.
func (t *Templates) Get(ctx context.Context, name string) (api.Template, error) {
	var out api.Template
	err := t.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "templates", name}}, &out)
	return out, err
}

// Tokens makes and revokes API keys.
type Tokens struct{ c *Client }

// Create makes a key. Its secret is in the answer and nowhere else.
func (t *Tokens) Create(ctx context.Context, in api.CreateToken) (api.NewToken, error) {
	var out api.NewToken
	err := t.c.call(ctx, request{method: http.MethodPost, path: []string{"v1", "me", "tokens"}, in: in}, &out)
	return out, err
}

// List gives the caller's keys without their secrets.
func (t *Tokens) List(ctx context.Context) ([]api.Token, error) {
	var out api.TokenList
	err := t.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "me", "tokens"}}, &out)
	return out.Tokens, err
}

// Revoke ends a key, named by its prefix (token.not_found).
func (t *Tokens) Revoke(ctx context.Context, prefix string) error {
	return t.c.call(ctx, request{method: http.MethodDelete, path: []string{"v1", "me", "tokens", prefix}}, nil)
}

// IsNotFound reports whether an error says that the thing asked for does not
// exist, be it a sandbox, file, template, key or process.
func IsNotFound(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Status() == http.StatusNotFound
}
