package agent

import (
	"context"
	"errors"
	"maps"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// resolveTemplate chooses the driver, waits for the template's image and for
// its snapshot, and settles the sizes.
func (a *Agent) resolveTemplate(ctx context.Context, c *creation) error {
	if c.source != nil || c.spec.Snapshot != "" {
		return a.resolveSource(ctx, c)
	}
	d, probe, err := a.drivers.usable(ctx, c.spec.Driver)
	if err != nil {
		return err
	}
	c.spec.Template = a.catalogue.canonical(c.spec.Template)
	o, err := a.catalogue.resolve(ctx, c.spec.Template, d, probe, sizesOf(c.spec))
	if err != nil {
		return err
	}
	c.resolved(d, o)
	return nil
}

// resolveSource is resolveTemplate of a sandbox that does not start from its
// template: what it is made of comes with the source.
func (a *Agent) resolveSource(ctx context.Context, c *creation) (err error) {
	if c.source == nil {
		c.source, c.letGo, err = a.openKept(ctx, c.spec.Snapshot, api.BootRestore)
		if err != nil {
			return err
		}
	} else {
		c.letGo = c.source.lease()
	}
	d, o, err := a.settleSource(ctx, c.source, c.spec.Driver, sizesOf(c.spec))
	if err != nil {
		return errors.Join(err, c.letGo())
	}
	env := maps.Clone(c.source.kept.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, c.spec.Env)
	c.spec.Template, c.spec.Env = c.source.kept.Template, env
	c.resolved(d, o)
	return nil
}

func (a *Agent) leaveSource(_ context.Context, c *creation) error {
	if c.letGo == nil {
		return nil
	}
	return c.letGo()
}

// resolved takes down what the machine is made of.
func (c *creation) resolved(d driver.Driver, o origin) {
	c.driver, c.origin = d, o
	c.sandbox.update(func(r *record) {
		r.Spec = c.spec
		r.Image = o.image.Digest
		r.Sandbox.Template = c.spec.Template
		r.Sandbox.Driver = d.Name()
		r.Sandbox.CPU = o.sizes.cpu
		r.Sandbox.MemoryMB = o.sizes.memoryMB
		r.Sandbox.DiskMB = o.sizes.diskMB
	})
}
