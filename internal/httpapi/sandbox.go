package httpapi

import (
	"context"

	"github.com/pandastack/pandastack/api"
)

// SandboxPath is the part of a request that names a sandbox. It is exported
// for the framework, which looks at embedded structs only then.
type SandboxPath struct {
	ID string `path:"id" maxLength:"64" doc:"Sandbox id" example:"k3v9x0q2m7c1b8n4t6zd"`
}

type sandboxOutput struct{ Body api.Sandbox }

func sandboxAnswer(s api.Sandbox, err error) (*sandboxOutput, error) {
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{s}, nil
}

type createInput struct {
	Key  string `header:"Idempotency-Key" maxLength:"255" doc:"Creates with the same key are one create: a repeated one answers the sandbox that the first one made"`
	Body *api.CreateSandbox
}

type createOutput struct {
	Location string `header:"Location" doc:"Path of the sandbox"`
	Body     api.Sandbox
}

func (a *API) createSandbox(ctx context.Context, in *createInput) (*createOutput, error) {
	if in.Body == nil {
		in.Body = &api.CreateSandbox{}
	}
	s, err := a.create(ctx, in)
	a.metrics.created(s, err)
	if err != nil {
		return nil, err
	}
	return &createOutput{sandboxes + "/" + s.ID, s}, nil
}

func (a *API) create(ctx context.Context, in *createInput) (api.Sandbox, error) {
	if in.Key != "" {
		return a.Control.CreateOnce(ctx, who(ctx), in.Key, *in.Body)
	}
	return a.Control.Create(ctx, who(ctx), *in.Body)
}

func (a *API) getSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return sandboxAnswer(a.Control.Get(ctx, who(ctx), in.ID))
}

func (a *API) deleteSandbox(ctx context.Context, in *SandboxPath) (*nothing, error) {
	return nil, a.Control.Delete(ctx, who(ctx), in.ID)
}

func (a *API) pauseSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return sandboxAnswer(a.Control.Pause(ctx, who(ctx), in.ID))
}

func (a *API) resumeSandbox(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return sandboxAnswer(a.Control.Resume(ctx, who(ctx), in.ID))
}

type metricsOutput struct{ Body api.Metrics }

func (a *API) getMetrics(ctx context.Context, in *SandboxPath) (*metricsOutput, error) {
	m, err := a.Control.Metrics(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return &metricsOutput{m}, nil
}
