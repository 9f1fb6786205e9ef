package agent

import (
	"context"
	"maps"
	"os"
	"slices"

	"github.com/pandastack/pandastack/api"
)

// Templates lists what Create may name: the agent's own templates and every
// tagged image, with the progress of what is being made.
func (a *Agent) Templates(ctx context.Context) ([]api.Template, error) {
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	tags, err := a.cfg.Images.Tags()
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(tags))
	for name := range a.catalogue.own {
		if _, ok := tags[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make([]api.Template, 0, len(names))
	for _, name := range names {
		out = append(out, a.catalogue.describe(name))
	}
	return out, nil
}

// describe gives the state of one template.
func (c *catalogue) describe(name string) api.Template {
	s := c.sizes(name)
	t := api.Template{Name: name, Aliases: c.own[name].Aliases, CPU: s.cpu, MemoryMB: s.memoryMB, DiskMB: s.diskMB}
	failed := c.failed.last(buildKey(name))
	img, err := c.agent.cfg.Images.Resolve(name)
	if err == nil {
		t.Digest, t.SizeBytes = img.Digest, img.Size
		if info, err := os.Stat(img.Path); err == nil {
			made := info.ModTime().UTC()
			t.CreatedAt = &made
		}
		failed = c.addSnapshots(&t)
	}
	c.mu.Lock()
	w, working := c.work[name]
	c.mu.Unlock()
	switch {
	case working:
		t.Status, t.Progress, t.Percent = "building", w.step, w.percent
	case failed != nil:
		t.Status, t.Error = "failed", api.AsError(failed)
	case err != nil && api.CodeOf(err) != api.CodeTemplateNotFound:
		t.Status, t.Error = "failed", api.AsError(err)
	case err != nil && c.own[name].OnDemand:
		t.Status, t.Progress = "on_demand", "built when it is first used"
	case err != nil:
		t.Status, t.Progress = "building", "waiting to be built"
	default:
		t.Status = "ready"
	}
	return t
}

// addSnapshots lists the drivers that have a snapshot of the template, and
// gives the error that a bake for one of them ended with.
func (c *catalogue) addSnapshots(t *api.Template) (failed error) {
	for _, d := range c.agent.drivers.list {
		probe := c.agent.drivers.probeOf(d.Name())
		if !probe.Usable || !probe.Capabilities.Snapshot {
			continue
		}
		dir := c.snapshotDir(d.Name(), probe.Version, t.Digest, c.sizes(t.Name))
		if _, ok := c.usableSnapshot(dir); ok {
			t.Snapshots = append(t.Snapshots, d.Name())
		} else if err := c.failed.last(bakeKey(dir)); err != nil {
			failed = err
		}
	}
	return failed
}

// ready says whether creates of the agent's own templates restore, and if not,
// what that waits for.
func (c *catalogue) ready(ctx context.Context) (bool, string) {
	d, probe, err := c.agent.drivers.usable(ctx, "")
	if err != nil {
		return false, api.AsError(err).Message
	}
	for _, own := range c.agent.cfg.Templates {
		if own.OnDemand {
			continue
		}
		t := c.describe(own.Name)
		switch {
		case t.Status == "failed":
			return false, "template " + own.Name + ": " + t.Error.Message
		case t.Status == "building":
			return false, "template " + own.Name + ": " + t.Progress
		case probe.Capabilities.Snapshot && !slices.Contains(t.Snapshots, d.Name()):
			return false, "template " + own.Name + ": its snapshot is not baked yet"
		}
	}
	return true, ""
}
