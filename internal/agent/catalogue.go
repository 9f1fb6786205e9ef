package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/image"
)

// catalogue knows what a create may start from: images by template name, and
// for each driver the snapshot baked from the image. What is missing is made
// once, however many creates wait for it.
type catalogue struct {
	agent  *Agent
	failed failures

	mu        sync.Mutex
	own       map[string]Template
	digests   map[string]string         // of own templates, once this run has built them
	work      map[string]work           // what is being made now, by template
	snapshots map[string]*bakedSnapshot // by directory
}

// work is a build or bake in progress.
type work struct {
	step    string
	percent float64
}

// bakedSnapshot is the state of one snapshot directory.
type bakedSnapshot struct {
	generation int // grows when the directory is thrown away
	doubts     int // starts from it that failed in a row, for no clear reason
	prepared   int // one more than the generation that the driver keeps shells for
}

// origin is what one machine starts from.
type origin struct {
	image      image.Image
	sizes      sizes
	snapshot   string // empty: cold
	generation int
}

func newCatalogue(a *Agent) *catalogue {
	c := &catalogue{
		agent:     a,
		own:       map[string]Template{},
		digests:   map[string]string{},
		work:      map[string]work{},
		snapshots: map[string]*bakedSnapshot{},
	}
	for _, t := range a.cfg.Templates {
		c.own[t.Name] = t
	}
	return c
}

// run makes the agent's own templates ready, then removes snapshots that
// nothing can use any more.
func (c *catalogue) run(ctx context.Context) {
	for _, t := range c.agent.cfg.Templates {
		if t.OnDemand {
			continue
		}
		d, probe, err := c.agent.drivers.usable(ctx, "")
		if err == nil {
			_, err = c.resolve(ctx, t.Name, d, probe, sizes{})
		}
		if err != nil && ctx.Err() == nil {
			c.agent.log.Error("template is not ready", "template", t.Name, "error", err)
		}
	}
	if err := c.prune(); err != nil && ctx.Err() == nil {
		c.agent.log.Warn("old snapshots could not be removed", "error", err)
	}
}

// canonical gives the name of a template that may be an alias of it.
func (c *catalogue) canonical(name string) string {
	for _, t := range c.agent.cfg.Templates {
		if slices.Contains(t.Aliases, name) {
			return t.Name
		}
	}
	return name
}

// resolve gives what a create of the template starts from, and waits until it
// has been made. Sizes that the driver cannot give a restored machine lead to
// a cold start.
func (c *catalogue) resolve(ctx context.Context, name string, d driver.Driver, probe driver.Probe, want sizes) (origin, error) {
	img, err := c.image(ctx, name)
	if err != nil {
		return origin{}, err
	}
	base := c.sizes(name)
	o := origin{image: img, sizes: want.or(base)}
	if can := probe.Capabilities; !can.Snapshot || !o.sizes.servedBy(base, can.ResizeOnCreate) {
		return o, nil
	}
	o.snapshot = c.snapshotDir(d.Name(), probe.Version, img.Digest, base)
	o.generation, err = c.baked(ctx, bake{template: name, driver: d, image: img, sizes: base, dir: o.snapshot})
	return o, err
}

// sizes gives the sizes of a template.
func (c *catalogue) sizes(name string) sizes {
	t := c.own[name]
	return sizes{cpu: t.CPU, memoryMB: t.MemoryMB, diskMB: t.DiskMB}.or(hostSizes())
}

// snapshotDir names the snapshot of an image for a driver. Version is
// the driver's: another build of the runtime or of the guest program needs
// another snapshot.
func (c *catalogue) snapshotDir(driverName, version, digest string, s sizes) string {
	sum := sha256.Sum256([]byte(version))
	short := strings.TrimPrefix(digest, "sha256:")
	short = short[:min(16, len(short))]
	name := strings.Join([]string{driverName, short, hex.EncodeToString(sum[:6]), s.class()}, "-")
	return filepath.Join(c.agent.cfg.Snapshots, name)
}

// state gives the entry of a snapshot directory; the caller holds the lock.
func (c *catalogue) state(dir string) *bakedSnapshot {
	s := c.snapshots[dir]
	if s == nil {
		s = &bakedSnapshot{}
		c.snapshots[dir] = s
	}
	return s
}

// usableSnapshot reports whether dir holds a snapshot, and its generation.
func (c *catalogue) usableSnapshot(dir string) (generation int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := os.Stat(dir) // under the lock, so that it is of this generation
	return c.state(dir).generation, err == nil
}

// worked says that a machine started from o.
func (c *catalogue) worked(o origin) {
	if o.snapshot == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state(o.snapshot).doubts = 0
}

// refuse judges a start from o that failed, and reports whether resolving again
// can help. A snapshot that the runtime refuses is thrown away; one that failed
// to boot is thrown away at the second time in a row. Of several creates that
// the same snapshot failed, one throws it away.
func (c *catalogue) refuse(o origin, err error) bool {
	if o.snapshot == "" || errors.Is(err, errTooSlow) {
		return false
	}
	code := api.CodeOf(err)
	if code != api.CodeSnapshotMismatch && code != api.CodeSnapshotCorrupt && code != api.CodeBootFailed {
		return false
	}
	c.mu.Lock()
	s := c.state(o.snapshot)
	if s.generation != o.generation {
		c.mu.Unlock()
		return true
	}
	if s.doubts++; code == api.CodeBootFailed && s.doubts < 2 {
		c.mu.Unlock()
		return true
	}
	s.generation++
	s.doubts = 0
	trash := c.agent.unfinished(api.NewID())
	moved := os.Rename(o.snapshot, trash)
	c.mu.Unlock()
	if moved != nil {
		c.agent.log.Error("cannot throw a snapshot away", "snapshot", o.snapshot, "error", moved)
		return false
	}
	if err := os.RemoveAll(trash); err != nil {
		c.agent.log.Warn("cannot remove a snapshot", "snapshot", trash, "error", err)
	}
	return true
}

// asked reports whether anything of this agent's life led to a snapshot.
func (c *catalogue) asked(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshots[dir] != nil
}

// prune removes the snapshots of usable drivers that no template leads to.
func (c *catalogue) prune() error {
	tags, err := c.agent.cfg.Images.Tags()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	prefixes := []string{}
	for _, d := range c.agent.drivers.list {
		probe := c.agent.drivers.probeOf(d.Name())
		if !probe.Usable {
			continue
		}
		prefixes = append(prefixes, d.Name()+"-")
		for name, digest := range tags {
			keep[filepath.Base(c.snapshotDir(d.Name(), probe.Version, digest, c.sizes(name)))] = true
		}
	}
	entries, err := os.ReadDir(c.agent.cfg.Snapshots)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(c.agent.cfg.Snapshots, e.Name())
		if keep[e.Name()] || c.asked(dir) || !hasPrefix(e.Name(), prefixes) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func hasPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
