package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pandastack/pandastack/api"
)

type nothing struct{}

type healthOutput struct {
	Status int
	Body   api.Health
}

func (a *API) health(context.Context, *nothing) (*healthOutput, error) {
	return &healthOutput{Status: http.StatusOK, Body: api.Health{Status: "ok"}}, nil
}

func (a *API) ready(ctx context.Context, _ *nothing) (*healthOutput, error) {
	h := a.Control.Ready(ctx)
	if h.Status == "ok" {
		return &healthOutput{Status: http.StatusOK, Body: h}, nil
	}
	return &healthOutput{Status: http.StatusServiceUnavailable, Body: h}, nil
}

type versionOutput struct{ Body api.Version }

func (a *API) version(context.Context, *nothing) (*versionOutput, error) {
	return &versionOutput{a.Version}, nil
}

func (a *API) prometheus(context.Context, *nothing) (*huma.StreamResponse, error) {
	return raw(a.metricsHandler()), nil
}

// raw makes an answer that writes itself.
func raw(h func(w http.ResponseWriter, r *http.Request)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		h(w, r)
	}}
}
