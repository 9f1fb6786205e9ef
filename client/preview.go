package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Ports lists the TCP ports that something listens on, and those that something
// was set for. A sleeping sandbox is not woken.
func (s *Sandbox) Ports(ctx context.Context) ([]api.Port, error) {
	var out api.PortList
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("ports")}, &out)
	return out.Ports, err
}

// ExposePort sets who may open the preview of a port; an empty visibility is
// public.
func (s *Sandbox) ExposePort(ctx context.Context, port int, v api.Visibility) (api.Port, error) {
	var out api.Port
	err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("ports"), in: api.ExposePort{Port: port, Visibility: v}}, &out)
	return out, err
}

// ClosePort closes the preview of a port to everybody, until it is exposed again.
func (s *Sandbox) ClosePort(ctx context.Context, port int) error {
	q := url.Values{"port": {strconv.Itoa(port)}}
	return s.c.call(ctx, request{method: http.MethodDelete, path: s.path("ports"), query: q}, nil)
}

// Preview gives the address of a port's preview, and says who may open it.
func (s *Sandbox) Preview(ctx context.Context, port int) (api.Preview, error) {
	var out api.Preview
	err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("preview"), in: api.PreviewPort{Port: port}}, &out)
	return out, err
}

// SignedPreviewURL makes a URL that opens the preview of a port, a private one
// too, for ttl, rounded up to seconds; 0 is the server's default of an hour.
func (s *Sandbox) SignedPreviewURL(ctx context.Context, port int, ttl time.Duration) (api.PreviewURL, error) {
	var out api.PreviewURL
	in := api.PreviewRequest{Port: port, TTLSeconds: wholeSeconds(ttl)}
	err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("preview-token"), in: in}, &out)
	return out, err
}
