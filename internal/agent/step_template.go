package agent

import (
	"context"
)

// resolveTemplate chooses the driver, waits for the template's image and for
// its snapshot, and settles the sizes.
func (a *Agent) resolveTemplate(ctx context.Context, c *creation) error {
	d, probe, err := a.drivers.usable(ctx, c.spec.Driver)
	if err != nil {
		return err
	}
	o, err := a.catalogue.resolve(ctx, c.spec.Template, d, probe, sizesOf(c.spec))
	if err != nil {
		return err
	}
	c.driver, c.origin = d, o
	c.sandbox.update(func(r *record) {
		r.Sandbox.Driver = d.Name()
		r.Sandbox.CPU = o.sizes.cpu
		r.Sandbox.MemoryMB = o.sizes.memoryMB
		r.Sandbox.DiskMB = o.sizes.diskMB
	})
	return nil
}
