package httpapi

import (
	"context"

	"github.com/pandastack/pandastack/api"
)

type lifecycleOutput struct{ Body api.Lifecycle }

func lifecycleAnswer(l api.Lifecycle, err error) (*lifecycleOutput, error) {
	if err != nil {
		return nil, err
	}
	return &lifecycleOutput{l}, nil
}

func (a *API) getLifecycle(ctx context.Context, in *SandboxPath) (*lifecycleOutput, error) {
	return lifecycleAnswer(a.Control.Lifecycle(ctx, who(ctx), in.ID))
}

type lifecycleInput struct {
	SandboxPath
	Body api.Lifecycle
}

func (a *API) setLifecycle(ctx context.Context, in *lifecycleInput) (*lifecycleOutput, error) {
	return lifecycleAnswer(a.Control.SetLifecycle(ctx, who(ctx), in.ID, in.Body))
}
