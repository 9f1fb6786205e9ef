package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// publish makes the sandbox whole: in the journal first, then for everyone who
// asks. From here on its machine's end is news.
func (a *Agent) publish(ctx context.Context, c *creation) error {
	handle := c.machine.Handle()
	rec := c.sandbox.update(func(r *record) {
		r.Handle = &handle
		r.Sandbox.BootMode = c.boot
		r.Sandbox.BootMS = milliseconds(time.Since(c.began))
		r.Sandbox.BootSteps = bootSteps(c.steps, c.machine)
	})
	if err := a.journal.save(rec); err != nil {
		return err
	}
	c.sandbox.show(true)
	a.watch(c.sandbox, c.machine, func(error) {
		if err := errors.Join(a.leaveSource(ctx, c), removeScratch(a.journal.dir(c.spec.ID))); err != nil {
			a.log.Warn("cannot let go of what a sandbox was started from", "sandbox", c.spec.ID, "error", err)
		}
	})
	return nil
}

// unpublish hides the sandbox again; the watch finds that its end is no news.
func (a *Agent) unpublish(_ context.Context, c *creation) error {
	c.sandbox.show(false)
	return nil
}

// bootSteps lists the steps so far, with those of the driver after its own.
func bootSteps(p *progress, m driver.Machine) []api.Step {
	var out []api.Step
	for _, s := range p.timings {
		out = append(out, s)
		if s.Name != "start" {
			continue
		}
		for _, inner := range m.Boot().Steps {
			out = append(out, api.Step{Name: "start." + inner.Name, MS: milliseconds(inner.Took)})
		}
	}
	return out
}
