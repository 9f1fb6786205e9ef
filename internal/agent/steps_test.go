package agent

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// trail is what steps did, in order.
type trail []string

func listOf(names ...string) []step[*trail] {
	var out []step[*trail]
	for _, n := range names {
		out = append(out, step[*trail]{n,
			func(_ context.Context, t *trail) error { *t = append(*t, n); return nil },
			func(_ context.Context, t *trail) error { *t = append(*t, "-"+n); return nil },
		})
	}
	return out
}

// points names both sides of every step.
func points[S any](op string, steps []step[S]) []string {
	var out []string
	for _, s := range steps {
		out = append(out, op+"."+s.name+".before", op+"."+s.name+".after")
	}
	return out
}

func TestStepsRunInOrderAndAreTimed(t *testing.T) {
	t.Parallel()
	var did trail
	p := &progress{op: "op"}
	if err := runSteps(t.Context(), p, listOf("a", "b", "c"), &did); err != nil {
		t.Fatal(err)
	}
	if want := (trail{"a", "b", "c"}); !slices.Equal(did, want) {
		t.Errorf("did %v, want %v", did, want)
	}
	var names []string
	for _, s := range p.timings {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("timed %v", names)
	}
}

// TestFailureUndoesWhatWasDone fails at every point of a list and compares what
// was undone.
func TestFailureUndoesWhatWasDone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		want  trail
	}{
		{"op.a.before", nil},
		{"op.a.after", trail{"a", "-a"}},
		{"op.b.before", trail{"a", "-a"}},
		{"op.b.after", trail{"a", "b", "-b", "-a"}},
		{"op.c.before", trail{"a", "b", "-b", "-a"}},
		{"op.c.after", trail{"a", "b", "c", "-c", "-b", "-a"}},
	} {
		t.Run(test.point, func(t *testing.T) {
			t.Parallel()
			var did trail
			boom := errors.New("boom")
			p := &progress{op: "op", fault: func(point string) error {
				if point == test.point {
					return boom
				}
				return nil
			}}
			if err := runSteps(t.Context(), p, listOf("a", "b", "c"), &did); !errors.Is(err, boom) {
				t.Fatalf("error %v, want boom", err)
			}
			if err := p.undo.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(did, test.want) {
				t.Errorf("did %v, want %v", did, test.want)
			}
		})
	}
}

func TestUndoGoesOnAfterFailureAndCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var undo undoStack
	first, last := errors.New("first"), errors.New("last")
	var did []string
	note := func(name string, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Errorf("undo of %s was cancelled", name)
			}
			did = append(did, name)
			return err
		}
	}
	undo.push("a", note("a", first))
	undo.push("b", note("b", nil))
	undo.push("c", note("c", last))
	err := undo.run(ctx)
	if !errors.Is(err, first) || !errors.Is(err, last) {
		t.Errorf("error %v does not join both", err)
	}
	if !slices.Equal(did, []string{"c", "b", "a"}) {
		t.Errorf("undid %v", did)
	}
	if err := undo.run(ctx); err != nil || len(did) != 3 {
		t.Errorf("a second run did more: %v, %v", did, err)
	}
}

func TestStepsStopWhenTheCallerLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	var did trail
	steps := listOf("a", "b")
	steps[0].do = func(context.Context, *trail) error { cancel(nil); return nil }
	err := runSteps(ctx, &progress{op: "op"}, steps, &did)
	if api.CodeOf(err) != api.CodeCanceled || len(did) != 0 {
		t.Errorf("error %v after %v", err, did)
	}
}

func TestContextErrorKeepsACodedCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopping())
	if got := api.CodeOf(contextError(ctx)); got != api.CodeHostUnreachable {
		t.Errorf("code %s", got)
	}
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	if got := api.CodeOf(contextError(late)); got != api.CodeTimeout {
		t.Errorf("code %s", got)
	}
}
