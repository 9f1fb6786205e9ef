package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// hibernation is one sandbox on its way to disk.
type hibernation struct {
	sandbox *sandbox
	old     record // what the sandbox was
	id      string // of the snapshot
	kept    kept
	unpark  func() // from capture
}

// hibernateSteps moves a sandbox to disk. Until the end of the last the machine
// stands still and can go on; a crash before it leaves the sandbox running and a
// snapshot that no record names, a crash after it a machine that no record names.
func (a *Agent) hibernateSteps() []step[*hibernation] {
	return []step[*hibernation]{
		{"capture", a.park, func(_ context.Context, h *hibernation) error {
			h.unpark()
			return a.cfg.Kept.Discard(h.id)
		}},
		{"keep", func(ctx context.Context, h *hibernation) error {
			_, err := a.cfg.Kept.Keep(ctx, snapshot.Info{ID: h.id, CreatedAt: time.Now().UTC(), Data: h.kept.encode()})
			return err
		}, func(ctx context.Context, h *hibernation) error {
			return a.cfg.Kept.Delete(ctx, h.id)
		}},
		{"record", a.recordSleep, func(_ context.Context, h *hibernation) error {
			h.sandbox.update(func(r *record) { *r = h.old })
			return a.journal.saveDurably(h.old)
		}},
	}
}

func (a *Agent) park(ctx context.Context, h *hibernation) (err error) {
	h.kept, err = a.capture(ctx, h.sandbox, true, a.cfg.Kept.Stage(h.id), func(ctx context.Context, m driver.Machine, dir string) error {
		h.unpark, err = m.Park(ctx, dir)
		return err
	})
	return err
}

// recordSleep writes that the sandbox is asleep and has no machine; what it has of
// one until the release is the sweeps' after a crash.
func (a *Agent) recordSleep(_ context.Context, h *hibernation) error {
	asleep := h.old
	asleep.Handle, asleep.Slot, asleep.Sleep = nil, nil, h.id
	asleep.Sandbox.State, asleep.Sandbox.GuestIP = host.StateHibernated, ""
	if err := a.journal.saveDurably(asleep); err != nil {
		return errors.Join(err, a.journal.saveDurably(h.old))
	}
	h.sandbox.update(func(r *record) {
		r.Sandbox, r.Sleep = asleep.Sandbox, asleep.Sleep
	})
	return nil
}

// Hibernate moves a sandbox to disk. Concurrent calls share the work, which goes
// on when a caller leaves.
func (a *Agent) Hibernate(ctx context.Context, id string) error {
	s, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	if _, err := a.keeper(); err != nil {
		return err
	}
	return a.flights.do(ctx, "hibernate "+id, func(ctx context.Context) error {
		if err := s.take(ctx); err != nil {
			return err
		}
		defer s.give()
		if _, visible := s.view(); visible && s.sleeping() {
			return nil
		}
		if _, _, err := s.current(); err != nil {
			return err
		}
		defer s.changeMachine()()
		return a.hibernate(ctx, s)
	})
}

func (a *Agent) hibernate(ctx context.Context, s *sandbox) error {
	began := time.Now()
	h := &hibernation{sandbox: s, old: s.record(), id: a.newSleepID()}
	p := &progress{op: "hibernate", fault: a.cfg.Fault}
	err := runSteps(ctx, p, a.hibernateSteps(), h)
	if err != nil {
		a.undo(ctx, p, s.id, err)
	} else {
		// What the sandbox was brought back from earlier is for its own
		// loading to remove, which the end of the machine ends.
		err = runSteps(context.WithoutCancel(ctx), p, a.stopSteps(), h)
	}
	sb := h.old.Sandbox
	a.observe(Observation{Op: "hibernate", Driver: sb.Driver, Template: sb.Template, Took: time.Since(began), Steps: p.timings, Err: err})
	return err
}

// stopSteps frees what a sandbox held that is asleep by now, whatever comes. What
// they leave a wake or a delete frees.
func (a *Agent) stopSteps() []step[*hibernation] {
	return []step[*hibernation]{{"stop", func(ctx context.Context, h *hibernation) error {
		ctx, cancel := detached(ctx)
		defer cancel()
		err := a.release(ctx, h.sandbox)
		h.unpark()
		if err != nil {
			return api.Wrap(api.CodeOf(err), err, "sandbox %s is asleep, but not all that it held could be freed", h.sandbox.id)
		}
		return nil
	}, nil}}
}
