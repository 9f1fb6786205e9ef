package store_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

func TestPreviews(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		parent, stranger := newSandbox("o"), newSandbox("o")
		must(t, s.CreateSandboxes(ctx, []*store.Sandbox{parent, stranger}, 10))
		must(t, s.SetPreview(ctx, parent.ID, 8000, api.PreviewPublic))
		must(t, s.SetPreview(ctx, parent.ID, 8000, api.PreviewPrivate))
		must(t, s.SetPreview(ctx, parent.ID, 9000, api.PreviewClosed))
		want := map[int]api.Visibility{8000: api.PreviewPrivate, 9000: api.PreviewClosed}
		has := func(id string, want map[int]api.Visibility) {
			t.Helper()
			if got, err := s.Previews(ctx, id); err != nil || !maps.Equal(got, want) {
				t.Fatalf("%v, want %v (%v)", got, want, err)
			}
		}
		has(parent.ID, want)
		has(stranger.ID, map[int]api.Visibility{})
		child := newSandbox("o")
		child.ParentID = parent.ID
		must(t, s.CreateSandbox(ctx, child, 10))
		must(t, s.SetPreview(ctx, parent.ID, 8000, api.PreviewPublic)) // is no matter of the child's
		has(child.ID, want)
		must(t, s.DeleteSandbox(ctx, parent.ID, time.Now()))
		has(parent.ID, map[int]api.Visibility{})
		has(child.ID, want)
		if err := s.SetPreview(ctx, parent.ID, 8000, api.PreviewPublic); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		must(t, s.ForgetSandboxes(ctx, []string{child.ID}))
		has(child.ID, map[int]api.Visibility{})
	})
}
