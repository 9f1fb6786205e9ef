package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
)

type execInput struct {
	SandboxPath
	Body api.Exec
}

type execOutput struct{ Body api.ExecResult }

func (a *API) exec(ctx context.Context, in *execInput) (*execOutput, error) {
	start := time.Now()
	res, err := a.Control.Exec(ctx, who(ctx), in.ID, in.Body)
	a.metrics.executed("exec", start, err)
	if err != nil {
		return nil, err
	}
	return &execOutput{res}, nil
}

func (a *API) execStream(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := newEventStream(w)
		err := out.during(a.KeepAlive, func() error {
			return a.Control.ExecStream(ctx, who(ctx), in.ID, in.Body, func(e api.ExecEvent) error {
				return out.send(e.Type, 0, e)
			})
		})
		a.metrics.executed("stream", start, err)
		if err != nil {
			a.endStream(out, w, r, err, func(e *api.Error) any { return api.ExecEvent{Type: "error", Error: e} })
		}
	}), nil
}

// endStream reports the failure of a stream: as an ordinary error answer if
// nothing was sent yet, else as a last event. Nobody is told when the client
// has left.
func (a *API) endStream(out *eventStream, w http.ResponseWriter, r *http.Request, err error, event func(*api.Error) any) {
	if !out.opened {
		a.fail(w, r, err)
		return
	}
	e := newEnvelope(r.Context(), err)
	if e.Failure.Code != api.CodeCanceled {
		_ = out.send("error", 0, event(e.Failure)) // the last thing this answer does
	}
}
