package agent

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/image"
)

// TestOnDemandTemplate is built by the first create, under any of its names,
// and nobody waits for it before.
func TestOnDemandTemplate(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	var builds atomic.Int32
	w := start(t, s, func(c *Config) {
		shared, own := c.Images, filepath.Join(s.Dir, "images")
		c.Snapshots = filepath.Join(s.Dir, "own")
		c.Images = image.NewStore(own, c.Log)
		c.Templates = []Template{{Name: "rare", Aliases: []string{"rare-v1"}, OnDemand: true, Build: func(context.Context, image.Progress) (image.Image, error) {
			builds.Add(1)
			img, err := shared.Resolve(testTemplate)
			if err != nil {
				return img, err
			}
			if err := os.MkdirAll(own, 0o700); err != nil {
				return img, err
			}
			return img, os.Link(img.Path, filepath.Join(own, filepath.Base(img.Path)))
		}}}
	})
	if info, err := w.Info(t.Context()); err != nil || !info.Ready {
		t.Errorf("a template that nobody asked for is waited for: %+v, %v", info, err)
	}
	list, err := w.Templates(t.Context())
	if err != nil || len(list) != 1 || list[0].Status != "on_demand" || builds.Load() != 0 {
		t.Errorf("templates %+v, %d builds, %v", list, builds.Load(), err)
	}
	spec := specFor(api.NewID())
	spec.Template = "rare-v1"
	sb, err := w.Create(t.Context(), spec)
	if err != nil || sb.Template != "rare" || builds.Load() != 1 {
		t.Errorf("create: %+v, %d builds, %v", sb, builds.Load(), err)
	}
	list, err = w.Templates(t.Context())
	if err != nil || len(list) != 1 || list[0].Status != "ready" {
		t.Errorf("templates %+v, %v", list, err)
	}
}
