package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
)

// publish makes the sandbox whole: in the journal first, then for everyone who
// asks. From here on its machine's end is news.
func (a *Agent) publish(_ context.Context, c *creation) error {
	handle := c.machine.Handle()
	rec := c.sandbox.update(func(r *record) {
		r.Handle = &handle
		r.Sandbox.BootMode = c.boot
		r.Sandbox.BootMS = milliseconds(time.Since(c.began))
		r.Sandbox.BootSteps = bootSteps(c)
	})
	if err := a.journal.save(rec); err != nil {
		return err
	}
	c.sandbox.show(true)
	a.watch(c.sandbox, c.machine)
	return nil
}

// unpublish hides the sandbox again; the watch finds that its end is no news.
func (a *Agent) unpublish(_ context.Context, c *creation) error {
	c.sandbox.show(false)
	return nil
}

// bootSteps lists the steps so far, with those of the driver after its own.
func bootSteps(c *creation) []api.Step {
	var out []api.Step
	for _, s := range c.steps.timings {
		out = append(out, s)
		if s.Name != "start" {
			continue
		}
		for _, inner := range c.machine.Boot().Steps {
			out = append(out, api.Step{Name: "start." + inner.Name, MS: milliseconds(inner.Took)})
		}
	}
	return out
}
