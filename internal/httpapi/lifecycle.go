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

// lifecyclePatch is api.Lifecycle as clients may send it.
type lifecyclePatch struct {
	api.Lifecycle
	IdleSeconds *int `json:"idle_seconds,omitempty" minimum:"0" doc:"Sleep after this long without a request; only 0 (never) is possible yet"`
}

type lifecycleInput struct {
	SandboxPath
	Body lifecyclePatch
}

func (a *API) setLifecycle(ctx context.Context, in *lifecycleInput) (*lifecycleOutput, error) {
	if in.Body.IdleSeconds != nil && *in.Body.IdleSeconds != 0 {
		return nil, api.Errorf(api.CodeUnsupported, "idle_seconds is not supported yet").With("field", "idle_seconds")
	}
	return lifecycleAnswer(a.Control.SetLifecycle(ctx, who(ctx), in.ID, in.Body.Lifecycle))
}
