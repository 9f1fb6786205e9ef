package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

// step is one named part of an operation on S. A step whose do fails has
// itself left nothing behind; undo takes back a do that succeeded, and is nil
// where nothing is to be taken back.
type step[S any] struct {
	name string
	do   func(context.Context, S) error
	undo func(context.Context, S) error
}

// Fault is asked at named points whether to go on. Tests use it to fail or to
// end the process there.
type Fault func(point string) error

func (f Fault) at(format string, args ...any) error {
	if f == nil {
		return nil
	}
	return f(fmt.Sprintf(format, args...))
}

// progress is one run of a list of steps: what to undo, and how long each step
// that was begun took.
type progress struct {
	op      string
	fault   Fault
	undo    undoStack
	timings []api.Step
}

// runSteps does the steps in order and stops at the first that fails. It undoes
// nothing: the caller runs p.undo, on failure or always.
func runSteps[S any](ctx context.Context, p *progress, steps []step[S], state S) error {
	for _, s := range steps {
		begin := time.Now()
		err := runStep(ctx, p, s, state)
		p.timings = append(p.timings, api.Step{Name: s.name, MS: milliseconds(time.Since(begin))})
		if err != nil {
			return err
		}
	}
	return nil
}

func runStep[S any](ctx context.Context, p *progress, s step[S], state S) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if err := p.fault.at("%s.%s.before", p.op, s.name); err != nil {
		return err
	}
	if err := s.do(ctx, state); err != nil {
		return err
	}
	if s.undo != nil {
		p.undo.push(s.name, func(ctx context.Context) error { return s.undo(ctx, state) })
	}
	return p.fault.at("%s.%s.after", p.op, s.name)
}

// contextError says with a code why ctx ended.
func contextError(ctx context.Context) error {
	err := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case api.CodeOf(err) != api.CodeInternal:
		return err
	case ctx.Err() == context.DeadlineExceeded:
		return api.Wrap(api.CodeTimeout, err, "the host ran out of time for this request")
	default:
		return api.Wrap(api.CodeCanceled, err, "the request was cancelled")
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}
