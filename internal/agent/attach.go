package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
)

// attachers is how many machines are attached at a time.
const attachers = 8

// attachTries is how often a machine that may still run is tried.
const attachTries = 3

// scratch is where machines live that are only baked from.
func (a *Agent) scratch() string { return filepath.Join(a.cfg.Dir, "bake") }

// unfinished names a directory beside the snapshots that is none: not whole
// yet, or no longer wanted.
func (a *Agent) unfinished(id string) string {
	return filepath.Join(a.cfg.Snapshots, unfinishedPrefix+id)
}

const unfinishedPrefix = "."

// takeOver adopts the sandboxes that an earlier agent left whole and removes
// everything else it left: machines first, then networks, then directories. A
// whole sandbox whose machine is gone becomes a failed one.
func (a *Agent) takeOver(ctx context.Context) error {
	whole, rest, err := a.journal.load()
	if err != nil {
		return err
	}
	adopted := a.attachAll(ctx, whole)
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	handles, named := map[string][]driver.Handle{}, map[string]bool{}
	var slots []int
	for _, s := range adopted {
		rec := s.record()
		named[rec.Sleep] = true
		if rec.Handle != nil {
			handles[rec.Handle.Driver] = append(handles[rec.Handle.Driver], *rec.Handle)
			slots = append(slots, rec.Slot.Index)
		}
	}
	err = errors.Join(a.drivers.sweep(ctx, handles), a.cfg.Network.Sweep(ctx, slots), a.cfg.Network.Keep(idsOf(adopted)))
	for _, name := range rest {
		err = errors.Join(err, a.journal.remove(name))
	}
	err = errors.Join(err, a.sweepSleeps(ctx, named), emptyDir(a.scratch(), ""), emptyDir(a.forks(), ""), emptyDir(a.cfg.Snapshots, unfinishedPrefix))
	if err != nil {
		a.log.Error("not everything that an earlier agent left could be removed", "error", err)
	}
	for _, s := range adopted {
		a.enter(s)
	}
	if len(whole)+len(rest) > 0 {
		a.log.Info("found the sandboxes of an earlier agent",
			"running", len(slots), "without_machine", len(adopted)-len(slots), "half_made", len(rest))
	}
	return nil
}

func idsOf(list []*sandbox) []string {
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = s.id
	}
	return ids
}

func (a *Agent) attachAll(ctx context.Context, whole []record) []*sandbox {
	out := make([]*sandbox, len(whole))
	var wg sync.WaitGroup
	free := make(chan struct{}, attachers)
	for i, rec := range whole {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			out[i] = a.attach(ctx, rec)
		})
	}
	wg.Wait()
	return out
}

// attach finds the machine of a whole sandbox. Where there is none to find it
// gives a sandbox that holds nothing but its record: one that is asleep if it can
// be brought back, else a failed one.
func (a *Agent) attach(ctx context.Context, rec record) *sandbox {
	s := newSandbox(rec)
	close(s.made)
	s.published = true
	if rec.Handle == nil && (rec.Sandbox.State == host.StateFailed || rec.Sandbox.State == host.StateHibernated) {
		a.removeStrayDirs(rec, noMachineDir)
		return s
	}
	m, err := a.attachMachine(ctx, rec)
	if err == nil {
		s.machine = m
		a.removeStrayDirs(rec, rec.Generation)
		return s
	}
	if ctx.Err() != nil {
		return s // the whole start is given up; the record stays as it is
	}
	asleep := a.canWake(ctx, rec.Sleep)
	a.log.Warn("a sandbox of an earlier agent is gone", "sandbox", s.id, "can_wake", asleep, "error", err)
	rec = s.update(func(r *record) {
		r.Handle, r.Slot = nil, nil // the sweeps free both
		switch {
		case asleep:
			r.Sandbox.State, r.Sandbox.GuestIP = host.StateHibernated, ""
		case r.Sandbox.State != host.StateFailed:
			r.Sandbox.State = host.StateFailed
			r.Sandbox.Error = api.Wrap(api.CodeSandboxDied, err, "sandbox %s stopped while the host's agent was away", s.id)
		}
	})
	if err := a.journal.saveDurably(rec); err != nil {
		a.log.Error("cannot record that a sandbox is gone", "sandbox", s.id, "error", err)
	}
	a.removeStrayDirs(rec, noMachineDir)
	return s
}

// removeStrayDirs removes what an earlier agent left of other machines of a
// sandbox.
func (a *Agent) removeStrayDirs(rec record, keep int) {
	err := errors.Join(a.journal.removeOtherMachineDirs(rec.Spec.ID, keep), removeScratch(a.journal.dir(rec.Spec.ID)))
	if err != nil {
		a.log.Error("cannot remove the directory of a machine that is gone", "sandbox", rec.Spec.ID, "error", err)
	}
}

// attachMachine finds the machine and its slot and makes it agree with the
// state in the record, which is older when a pause or resume was interrupted.
func (a *Agent) attachMachine(ctx context.Context, rec record) (driver.Machine, error) {
	if rec.Handle == nil || rec.Slot == nil {
		return nil, fmt.Errorf("the record names no machine")
	}
	if rec.Sandbox.State == host.StateFailed {
		return nil, fmt.Errorf("it had failed before")
	}
	d := a.drivers.named(rec.Handle.Driver)
	if d == nil {
		return nil, fmt.Errorf("this host has no driver %q", rec.Handle.Driver)
	}
	m, err := attachAgain(ctx, d, *rec.Handle)
	if err != nil {
		return nil, err
	}
	slot, err := a.cfg.Network.Adopt(ctx, rec.Slot.Index)
	if err != nil {
		return m, a.giveUp(ctx, err, m.Stop)
	}
	if err := a.agree(ctx, m, slot, rec); err != nil {
		// A slot that was adopted is not swept.
		return m, a.giveUp(ctx, err, m.Stop, func(ctx context.Context) error { return a.cfg.Network.Release(ctx, slot) })
	}
	return m, nil
}

// giveUp frees what an attach that failed has found, unless the whole start is
// given up: then all stays for the next.
func (a *Agent) giveUp(ctx context.Context, err error, free ...func(context.Context) error) error {
	if ctx.Err() != nil {
		return err
	}
	for _, f := range free {
		err = errors.Join(err, f(ctx))
	}
	return err
}

// attachAgain tries more than once, because a machine that cannot be attached
// is swept: only its own end is believed at the first word.
func attachAgain(ctx context.Context, d driver.Driver, h driver.Handle) (m driver.Machine, err error) {
	for range attachTries {
		m, err = d.Attach(ctx, h)
		if err == nil || ctx.Err() != nil || api.CodeOf(err) == api.CodeSandboxDied {
			return m, err
		}
	}
	return nil, err
}

// agree makes the machine and what its slot lets through as the record says.
func (a *Agent) agree(ctx context.Context, m driver.Machine, slot hostnet.Slot, rec record) error {
	if err := a.cfg.Network.Admit(ctx, slot, rec.Spec.ID, rec.Sandbox.Network); err != nil {
		return err
	}
	if d, ok := a.drivers.capabilities(rec.Handle.Driver); !ok || !d.Pause {
		return nil
	}
	if rec.Sandbox.State == host.StatePaused {
		return m.Pause(ctx)
	}
	return m.Resume(ctx)
}

// enter makes an adopted sandbox known and watches its machine.
func (a *Agent) enter(s *sandbox) {
	a.add(s)
	if s.machine != nil {
		sleep := s.record().Sleep
		a.watch(s, s.machine, func(err error) { a.broughtBack(s, s.machine, sleep, err) })
	}
}

// emptyDir removes what is in dir under names that start with prefix.
func emptyDir(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
