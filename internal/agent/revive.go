package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
)

// revival is a sandbox that gets another machine: by a wake or by a rollback.
type revival struct {
	sandbox  *sandbox
	snapshot string // what it gets it from
	mode     api.BootMode
	began    time.Time
	old      record         // what the sandbox was
	before   driver.Machine // that it has; nil of a sleeping one
	steps    *progress

	source     *source // from open
	letGo      func() error
	driver     driver.Driver
	origin     origin
	slot       hostnet.Slot // from slot
	generation int          // from disk: of the machine's directory
	boot       api.BootMode // from start
	machine    driver.Machine
}

// reviveSteps gives a sandbox another machine. Until the end of the last the
// sandbox is what it was: the record names one machine at any time, and the next
// start sweeps the other. They are those of a create where they do the same.
func (a *Agent) reviveSteps() []step[*revival] {
	return []step[*revival]{
		{"open", a.openRevival, func(_ context.Context, r *revival) error { return r.letGo() }},
		{"freeze", a.freezeBefore, a.thawBefore},
		{"slot", a.slotAgain, func(ctx context.Context, r *revival) error {
			if r.before != nil {
				return nil
			}
			return a.cfg.Network.Release(ctx, r.slot)
		}},
		{"disk", func(_ context.Context, r *revival) error {
			if r.generation = r.old.Generation; r.before != nil {
				r.generation++
			}
			return a.journal.emptyMachineDir(r.sandbox.id, r.generation)
		}, func(_ context.Context, r *revival) error {
			return a.journal.removeMachineDir(r.sandbox.id, r.generation)
		}},
		{"start", a.startRevival, func(ctx context.Context, r *revival) error { return r.machine.Stop(ctx) }},
		{"guest", func(ctx context.Context, r *revival) error {
			return a.introduce(ctx, r.machine, r.boot, r.old.Spec, r.source)
		}, nil},
		{"record", a.recordRevival, a.unrecordRevival},
	}
}

// openRevival opens the snapshot, which must be one of this sandbox.
func (a *Agent) openRevival(ctx context.Context, r *revival) (err error) {
	r.source, r.letGo, err = a.openKept(ctx, r.snapshot, r.mode)
	if err != nil {
		return err
	}
	if r.source.kept.SandboxID != r.sandbox.id {
		err = api.Errorf(api.CodeInvalidRequest, "snapshot %s is not one of sandbox %s", r.snapshot, r.sandbox.id).
			WithHint("Create another sandbox from it instead.")
		return errors.Join(err, r.letGo())
	}
	want := sizesOf(host.Spec{CPU: r.old.Sandbox.CPU, MemoryMB: r.old.Sandbox.MemoryMB, DiskMB: r.old.Sandbox.DiskMB})
	if can, _ := a.drivers.capabilities(r.source.kept.Driver); r.source.kept.Memory && !can.ResizeOnCreate {
		want = r.source.kept.sizes()
	}
	r.driver, r.origin, err = a.settleSource(ctx, r.source, "", want)
	if err != nil {
		return errors.Join(err, r.letGo())
	}
	return nil
}

// freezeBefore stops the time of the present machine: what it did from here on
// would be lost, or done twice.
func (a *Agent) freezeBefore(ctx context.Context, r *revival) error {
	if r.before == nil || r.old.Sandbox.State == host.StatePaused || !a.canPause(r.old) {
		return nil
	}
	return r.before.Pause(ctx)
}

func (a *Agent) thawBefore(ctx context.Context, r *revival) error {
	if r.before == nil || r.old.Sandbox.State == host.StatePaused || !a.canPause(r.old) {
		return nil
	}
	return r.before.Resume(ctx)
}

func (a *Agent) canPause(rec record) bool {
	can, ok := a.drivers.capabilities(rec.Sandbox.Driver)
	return ok && can.Pause
}

// slotAgain keeps the place on the network, or takes one.
func (a *Agent) slotAgain(ctx context.Context, r *revival) (err error) {
	if r.before != nil {
		r.slot = *r.old.Slot
		return nil
	}
	r.slot, err = a.place(ctx, r.sandbox.id, r.old.Sandbox.Network)
	return err
}

// startRevival starts the machine under a name of its own: the other one may
// still have the sandbox's.
func (a *Agent) startRevival(ctx context.Context, r *revival) (err error) {
	id := r.sandbox.id
	spec := driver.Spec{
		ID:       api.NewID(),
		Dir:      a.journal.machineDir(id, r.generation),
		Image:    driver.Image{Path: r.origin.image.Path, Digest: r.origin.image.Digest},
		Limits:   r.origin.sizes.limits(),
		Network:  networkOf(r.slot),
		Hostname: hostname(id),
	}
	r.boot = r.source.boot()
	if err := r.source.into(ctx, &spec, a.journal.dir(id)); err != nil {
		return err
	}
	r.machine, err = a.launch(ctx, r.driver, r.boot, spec)
	return err
}

// recordRevival makes the new machine the sandbox's.
func (a *Agent) recordRevival(_ context.Context, r *revival) error {
	handle, slot := r.machine.Handle(), r.slot
	rec := r.old
	rec.Handle, rec.Slot, rec.Generation = &handle, &slot, r.generation
	rec.Image, rec.Sleep = r.origin.image.Digest, r.snapshot
	sb := &rec.Sandbox
	sb.State, sb.Driver, sb.Error = host.StateRunning, r.driver.Name(), nil
	sb.GuestIP = slot.Address.Addr().String()
	sb.CPU, sb.MemoryMB, sb.DiskMB = r.origin.sizes.cpu, r.origin.sizes.memoryMB, r.origin.sizes.diskMB
	sb.BootMode, sb.BootMS, sb.BootSteps = r.boot, milliseconds(time.Since(r.began)), bootSteps(r.steps, r.machine)
	if err := a.journal.save(rec); err != nil {
		return err
	}
	r.sandbox.update(func(to *record) { *to = rec })
	r.sandbox.setMachine(r.machine)
	return nil
}

func (a *Agent) unrecordRevival(_ context.Context, r *revival) error {
	r.sandbox.update(func(to *record) { *to = r.old })
	r.sandbox.setMachine(r.before)
	return a.journal.saveDurably(r.old)
}

// revive gives a sandbox another machine, or leaves it as it was. The caller has
// the sandbox's turn, which ends when what the sandbox was before is gone: nobody
// has to wait for that but who wants to change the sandbox again.
func (a *Agent) revive(ctx context.Context, op string, s *sandbox, snapshot string, mode api.BootMode, began time.Time) error {
	r, err := a.replace(ctx, op, s, snapshot, mode, began)
	if err != nil {
		s.give()
		return err
	}
	retire := func(ctx context.Context) {
		defer s.give()
		a.retire(ctx, r)
	}
	if r.before == nil || !a.flights.run(retire) {
		retire(ctx)
	}
	return nil
}

func (a *Agent) replace(ctx context.Context, op string, s *sandbox, snapshot string, mode api.BootMode, began time.Time) (*revival, error) {
	defer s.changeMachine()()
	if s.sleeping() { // of which something may have been left
		if err := a.release(ctx, s); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	before := s.machine
	s.mu.Unlock()
	p := &progress{op: op, fault: a.cfg.Fault}
	r := &revival{sandbox: s, snapshot: snapshot, mode: mode, began: began, old: s.record(), before: before, steps: p}
	err := runSteps(ctx, p, a.reviveSteps(), r)
	if err != nil && ctx.Err() != nil {
		err = contextError(ctx)
	}
	if err != nil {
		a.undo(ctx, p, s.id, err)
	} else {
		a.watchRevival(r)
	}
	sb := s.record().Sandbox
	a.observe(Observation{Op: op, Driver: sb.Driver, Template: sb.Template, Boot: r.boot, Took: time.Since(began), Steps: p.timings, Err: err})
	return r, err
}

// watchRevival follows the new machine.
func (a *Agent) watchRevival(r *revival) {
	s := r.sandbox
	a.watch(s, r.machine, func(failed error) {
		if err := errors.Join(r.letGo(), removeScratch(a.journal.dir(s.id))); err != nil {
			a.log.Warn("cannot let go of what a sandbox was started from", "sandbox", s.id, "error", err)
		}
		a.broughtBack(s, r.machine, r.snapshot, failed)
	})
}

// retire removes what the sandbox was before. What fails the next start sweeps.
func (a *Agent) retire(ctx context.Context, r *revival) {
	s := r.sandbox
	steps := []step[*revival]{{"retire", func(ctx context.Context, r *revival) error {
		ctx, cancel := detached(ctx)
		defer cancel()
		var errs []error
		if r.before != nil {
			errs = append(errs, r.before.Stop(ctx), a.journal.removeOtherMachineDirs(s.id, r.generation))
		}
		if r.old.Sleep != r.snapshot {
			errs = append(errs, a.dropSleep(ctx, r.old.Sleep))
		}
		return errors.Join(errs...)
	}, nil}}
	p := &progress{op: r.steps.op, fault: a.cfg.Fault}
	if err := runSteps(context.WithoutCancel(ctx), p, steps, r); err != nil {
		a.log.Error("what a sandbox was before could not be removed", "sandbox", s.id, "error", err)
	}
}
