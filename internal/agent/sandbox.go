package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// sandbox is one entry of the agent's table: a create in progress, then a live
// sandbox, then one that failed, until it is deleted.
type sandbox struct {
	id string

	// made is closed when the create has ended; published says how.
	made         chan struct{}
	cancelCreate context.CancelCauseFunc

	// turn admits one change of state at a time: pause, resume, a capture, sleep,
	// a rollback, death, delete.
	turn chan struct{}

	mu        sync.Mutex
	published bool // visible to everyone: made, and not being deleted
	rec       record
	machine   driver.Machine // nil when there is none (any more)
	changing  chan struct{}  // closed when the machine that is being replaced has been
	cpuAt     time.Time      // of the last usage reading
	cpu       time.Duration
}

func newSandbox(r record) *sandbox {
	return &sandbox{
		id:           r.Spec.ID,
		made:         make(chan struct{}),
		cancelCreate: func(error) {},
		turn:         make(chan struct{}, 1),
		rec:          r,
	}
}

// take waits for the sandbox's turn; give ends it.
func (s *sandbox) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (s *sandbox) give() { <-s.turn }

// view gives what everyone may see; false while it is being created.
func (s *sandbox) view() (host.Sandbox, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Sandbox, s.published
}

func (s *sandbox) record() record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec
}

// update changes the record under the lock.
func (s *sandbox) update(change func(*record)) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.rec)
	return s.rec
}

func (s *sandbox) setMachine(m driver.Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine = m
	s.cpuAt, s.cpu = time.Time{}, 0
}

// changeMachine says that the machine is about to be replaced or put away, and
// done that it is settled which one there is. New connections wait in between.
// The caller has the sandbox's turn.
func (s *sandbox) changeMachine() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changing := make(chan struct{})
	s.changing = changing
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changing = nil
		close(changing)
	}
}

// settled returns when the machine is not being replaced.
func (s *sandbox) settled(ctx context.Context) error {
	for {
		s.mu.Lock()
		changing := s.changing
		s.mu.Unlock()
		if changing == nil {
			return nil
		}
		select {
		case <-changing:
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
}

// show makes the sandbox visible to everyone, or hides it.
func (s *sandbox) show(visible bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = visible
}

// running gives the machine of a sandbox that runs. Others are refused with
// sandbox.invalid_state, or with sandbox.died and the reason.
func (s *sandbox) running() (driver.Machine, error) {
	m, state, err := s.current()
	if err == nil && state != host.StateRunning {
		return nil, api.Errorf(api.CodeSandboxState, "sandbox %s is %s", s.id, state)
	}
	return m, err
}

// current gives the machine and its state, whether it runs or is paused.
func (s *sandbox) current() (driver.Machine, host.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.rec.Sandbox.State
	switch {
	case !s.published:
		return nil, state, notFound(s.id)
	case state == host.StateFailed, state == host.StateHibernated, s.machine == nil:
		return nil, state, api.Errorf(api.CodeSandboxState, "sandbox %s is %s", s.id, state)
	}
	return s.machine, state, nil
}

// release frees what a sandbox holds besides its record: machine, slot and
// machine directories. What has been freed is not freed again, so that a failed
// release may be repeated. The caller has the sandbox's turn.
func (a *Agent) release(ctx context.Context, s *sandbox) error {
	s.mu.Lock()
	machine, slot := s.machine, s.rec.Slot
	s.mu.Unlock()
	if machine != nil {
		if err := machine.Stop(ctx); err != nil {
			return err
		}
		s.setMachine(nil)
	}
	var errs []error
	if slot != nil {
		err := a.cfg.Network.Release(ctx, *slot)
		if err == nil {
			s.update(func(r *record) { r.Slot = nil })
		}
		errs = append(errs, err)
	}
	s.update(func(r *record) { r.Handle = nil })
	errs = append(errs, a.journal.removeOtherMachineDirs(s.id, noMachineDir))
	return errors.Join(errs...)
}

func notFound(id string) error {
	return api.Errorf(api.CodeSandboxNotFound, "there is no sandbox %s", id)
}

func errStopping() error {
	return api.Errorf(api.CodeHostUnreachable, "the host's agent is stopping")
}
