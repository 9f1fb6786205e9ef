package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/image"
)

func TestSizesOfACreate(t *testing.T) {
	t.Parallel()
	w := start(t, newSetting(t))
	more := w.create(func(s *host.Spec) { s.MemoryMB, s.CPU = 512, 2 })
	if more.BootMode != api.BootRestore || more.MemoryMB != 512 || more.CPU != 2 || more.DiskMB != 256 {
		t.Errorf("more memory and CPUs: %+v", more)
	}
	use, err := w.Usage(t.Context(), more.ID)
	if err != nil || use.MemoryLimit != 512<<20 {
		t.Errorf("usage %+v, %v", use, err)
	}
	disk := w.create(func(s *host.Spec) { s.DiskMB = 64 })
	if disk.BootMode != api.BootCold || disk.DiskMB != 64 {
		t.Errorf("another disk: %+v", disk)
	}
	if got := w.sh(disk.ID, "echo cold; hostname"); got != "cold\n"+hostname(disk.ID) {
		t.Errorf("in the cold sandbox: %q", got)
	}
}

func TestDamagedSnapshotIsBakedAnew(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s, func(c *Config) { c.Snapshots = filepath.Join(s.Dir, "own") })
	w.create()
	dirs, err := filepath.Glob(filepath.Join(s.Dir, "own", "gvisor-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("snapshots %v, %v", dirs, err)
	}
	files, err := os.ReadDir(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Truncate(filepath.Join(dirs[0], f.Name()), 1); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			sb, err := w.Create(t.Context(), specFor(api.NewID()))
			if err != nil || sb.BootMode != api.BootRestore {
				t.Errorf("create from a damaged snapshot: %+v, %v", sb, err)
			}
		})
	}
	wg.Wait()
	left, _ := filepath.Glob(filepath.Join(s.Dir, "own", "*"))
	hidden, _ := filepath.Glob(filepath.Join(s.Dir, "own", ".*"))
	if len(left) != 1 || len(hidden) != 0 {
		t.Errorf("snapshots %v and %v, want one", left, hidden)
	}
}

func TestCreateWaitsForATemplateThatIsBuilt(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	release := make(chan struct{})
	var builds atomic.Int32
	w := start(t, s, func(c *Config) {
		shared := c.Images
		c.Snapshots = filepath.Join(s.Dir, "own")
		c.Images = image.NewStore(filepath.Join(s.Dir, "images"), c.Log)
		c.Templates = []Template{{Name: "late", Build: func(ctx context.Context, report image.Progress) (image.Image, error) {
			builds.Add(1)
			report("thinking", 0.5)
			select {
			case <-release:
			case <-ctx.Done():
				return image.Image{}, ctx.Err()
			}
			img, err := shared.Resolve(testTemplate)
			if err != nil {
				return img, err
			}
			own := filepath.Join(s.Dir, "images")
			if err := os.MkdirAll(own, 0o700); err != nil {
				return img, err
			}
			return img, os.Link(img.Path, filepath.Join(own, filepath.Base(img.Path)))
		}}}
	})
	ctx := t.Context()
	spec := specFor(api.NewID())
	spec.Template = "late"
	impatient, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := w.Create(impatient, spec)
	wantCode(t, err, api.CodeTimeout)
	list, err := w.Templates(ctx)
	if err != nil || len(list) != 1 || list[0].Status != "building" || list[0].Progress != "thinking" || list[0].Percent != 50 {
		t.Errorf("templates %+v, %v", list, err)
	}
	if info, err := w.Info(ctx); err != nil || info.Ready || !strings.Contains(info.Detail, "late") {
		t.Errorf("info %+v, %v", info, err)
	}
	created := make(chan error, 2)
	for range 2 {
		go func() {
			spec := specFor(api.NewID())
			spec.Template = "late"
			_, err := w.Create(ctx, spec)
			created <- err
		}()
	}
	close(release)
	for range 2 {
		if err := <-created; err != nil {
			t.Errorf("create: %v", err)
		}
	}
	if n := builds.Load(); n != 1 {
		t.Errorf("the image was built %d times", n)
	}
	list, err = w.Templates(ctx)
	if err != nil || len(list) != 1 || list[0].Status != "ready" || !slices.Contains(list[0].Snapshots, "gvisor") || list[0].SizeBytes == 0 {
		t.Errorf("templates %+v, %v", list, err)
	}
	info, err := w.Info(ctx)
	if err != nil || !info.Ready || info.CPUs == 0 || info.MemoryMB == 0 || info.Kernel == "" || info.Default != "gvisor" || info.Slots == 0 {
		t.Errorf("info %+v, %v", info, err)
	}
}

// TestForeignTag: what another configuration has left under the name of an own
// template is not what a create starts from.
func TestForeignTag(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s, func(c *Config) {
		shared := c.Images
		c.Snapshots = filepath.Join(s.Dir, "own")
		store := image.NewStore(filepath.Join(s.Dir, "images"), c.Log)
		c.Images = store
		own := filepath.Join(s.Dir, "images")
		good, err := shared.Resolve(testTemplate)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := shared.Resolve(guestTag) // it has no shell and does not boot
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(own, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, img := range []image.Image{good, foreign} {
			if err := os.Link(img.Path, filepath.Join(own, filepath.Base(img.Path))); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Tag("mine", foreign.Digest); err != nil {
			t.Fatal(err)
		}
		c.Templates = []Template{{Name: "mine", Build: func(context.Context, image.Progress) (image.Image, error) { return good, nil }}}
	})
	spec := specFor(api.NewID())
	spec.Template = "mine"
	if _, err := w.Create(t.Context(), spec); err != nil {
		t.Errorf("create: %v", err)
	}
}

func TestBuildThatFails(t *testing.T) {
	t.Parallel()
	var builds atomic.Int32
	w := start(t, newSetting(t), func(c *Config) {
		c.Templates = []Template{{Name: "broken", Build: func(context.Context, image.Progress) (image.Image, error) {
			builds.Add(1)
			return image.Image{}, errors.New("no mirror")
		}}}
	})
	for range 3 {
		spec := specFor(api.NewID())
		spec.Template = "broken"
		_, err := w.Create(t.Context(), spec)
		wantCode(t, err, api.CodeTemplateBuild)
		if strings.Contains(api.AsError(err).Message, "no mirror") {
			t.Errorf("the message shows the cause: %v", err)
		}
	}
	if n := builds.Load(); n != 1 {
		t.Errorf("a failed build was tried %d times at once", n)
	}
	list, err := w.Templates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range list {
		if template.Name == "broken" && (template.Status != "failed" || template.Error == nil) {
			t.Errorf("template %+v", template)
		}
	}
	if info, err := w.Info(t.Context()); err != nil || info.Ready || info.Detail == "" {
		t.Errorf("info %+v, %v", info, err)
	}
}
