package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// creation is what the steps of one create hand on to each other.
type creation struct {
	spec    host.Spec
	began   time.Time
	cancel  context.CancelCauseFunc
	sandbox *sandbox // from reserve
	driver  driver.Driver
	source  *source        // given, or from template; nil: the template's own snapshot
	letGo   func() error   // from template: ends the lease on the source
	origin  origin         // from template
	machine driver.Machine // from start
	boot    api.BootMode
	steps   *progress
}

// finish lets a delete that waits for the create go on.
func (c *creation) finish() {
	if c.sandbox != nil {
		close(c.sandbox.made)
	}
}

// createSteps is the whole of a create, in order. A crash before the end of
// publish leaves no record, so the next start sweeps what the steps before it
// made; after it the sandbox is whole.
func (a *Agent) createSteps() []step[*creation] {
	return []step[*creation]{
		{"reserve", a.reserve, a.unreserve},
		{"template", a.resolveTemplate, a.leaveSource},
		{"slot", a.takeSlot, a.releaseSlot},
		{"disk", a.makeDisk, a.removeDisk},
		{"start", a.startMachine, a.stopMachine},
		{"guest", a.initGuest, nil},
		{"publish", a.publish, a.unpublish},
	}
}

// Create starts a sandbox and returns when its guest has answered. A failed
// create has taken everything back before it returns.
func (a *Agent) Create(ctx context.Context, spec host.Spec) (host.Sandbox, error) {
	began := time.Now()
	if err := a.await(ctx); err != nil {
		return host.Sandbox{}, err
	}
	if err := validate(spec); err != nil {
		return host.Sandbox{}, err
	}
	ctx, leave, err := a.during(ctx)
	if err != nil {
		return host.Sandbox{}, err
	}
	defer leave()
	return a.make(ctx, &creation{spec: spec, began: began, steps: &progress{op: "create", fault: a.cfg.Fault}})
}

// during counts a call among what a stopping agent waits for. Its context ends
// when the agent stops.
func (a *Agent) during(ctx context.Context) (context.Context, func(), error) {
	leave, ok := a.flights.enter()
	if !ok {
		return nil, nil, errStopping()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.flights.ctx, func() { cancel(errStopping()) })
	return ctx, func() {
		stop()
		cancel(nil)
		leave()
	}, nil
}

// make is the work of a create.
func (a *Agent) make(ctx context.Context, c *creation) (host.Sandbox, error) {
	ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	p := c.steps
	err := runSteps(ctx, p, a.createSteps(), c)
	spec := c.spec
	o := Observation{Op: "create", Driver: spec.Driver, Template: spec.Template, Boot: c.boot, Took: time.Since(c.began), Steps: p.timings, Err: err}
	if c.driver != nil {
		o.Driver = c.driver.Name()
	}
	a.observe(o)
	defer c.finish()
	if err == nil {
		return c.sandbox.record().Sandbox, nil
	}
	if ctx.Err() != nil {
		err = contextError(ctx)
	}
	if left := p.undo.run(ctx); left != nil {
		a.log.Error("a failed create could not be taken back whole; the next start sweeps what is left",
			"sandbox", spec.ID, "cause", err, "error", left)
	}
	return host.Sandbox{}, err
}

// validate refuses what no step could serve. The id becomes part of paths.
func validate(spec host.Spec) error {
	switch {
	case !api.ValidID(spec.ID):
		return api.Errorf(api.CodeInvalidRequest, "id is not 20 characters of a-z and 0-9")
	case spec.Snapshot != "" && !api.ValidSnapshotID(spec.Snapshot):
		return api.Errorf(api.CodeInvalidRequest, "snapshot is not a snapshot's id")
	case spec.Template == "" && spec.Snapshot == "":
		return api.Errorf(api.CodeInvalidRequest, "template is empty")
	case spec.Token == "":
		return api.Errorf(api.CodeInvalidRequest, "token is empty")
	case spec.CPU < 0, spec.MemoryMB < 0, spec.DiskMB < 0:
		return api.Errorf(api.CodeInvalidRequest, "cpu, memory_mb and disk_mb may not be negative")
	}
	return nil
}
