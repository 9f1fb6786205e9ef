package agent

import (
	"context"
	"net"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// Get gives one sandbox. One that is being created is not found yet.
func (a *Agent) Get(ctx context.Context, id string) (host.Sandbox, error) {
	s, err := a.find(ctx, id)
	if err != nil {
		return host.Sandbox{}, err
	}
	v, ok := s.view()
	if !ok {
		return host.Sandbox{}, notFound(id)
	}
	return v, nil
}

// List gives every sandbox of this host, oldest first.
func (a *Agent) List(ctx context.Context) ([]host.Sandbox, error) {
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	out := []host.Sandbox{}
	for _, s := range a.all() {
		if v, ok := s.view(); ok {
			out = append(out, v)
		}
	}
	sortSandboxes(out)
	return out, nil
}

// Pause freezes a sandbox. Pausing a paused one is nil.
func (a *Agent) Pause(ctx context.Context, id string) error {
	return a.shift(ctx, id, host.StatePaused, driver.Machine.Pause)
}

// Resume lets a paused sandbox go on. Resuming a running one is nil.
func (a *Agent) Resume(ctx context.Context, id string) error {
	return a.shift(ctx, id, host.StateRunning, driver.Machine.Resume)
}

// shift moves a sandbox to another state by move, and records it after the
// machine has done it: the next start makes the machine agree with the record.
func (a *Agent) shift(ctx context.Context, id string, to host.State, move func(driver.Machine, context.Context) error) error {
	s, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	m, state, err := s.current()
	if err != nil || state == to {
		return err
	}
	if err := move(m, ctx); err != nil {
		return err
	}
	return a.journal.save(s.update(func(r *record) { r.Sandbox.State = to }))
}

// Dial connects to a TCP port inside a running sandbox.
func (a *Agent) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, api.Errorf(api.CodeInvalidRequest, "port %d is not between 1 and 65535", port)
	}
	s, err := a.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	m, err := s.running()
	if err != nil {
		return nil, err
	}
	conn, err := m.Dial(ctx, port)
	if err != nil {
		return nil, dialError(ctx, id, port, err)
	}
	return conn, nil
}

// dialError gives a failed connection its code: the guest's daemon always
// listens, while any other port is the business of what runs in the sandbox.
func dialError(ctx context.Context, id string, port int, err error) error {
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case api.CodeOf(err) != api.CodeInternal:
		return err
	case port == api.InternalPort:
		return api.Wrap(api.CodeSandboxDied, err, "the daemon of sandbox %s does not accept connections", id)
	default:
		return api.Wrap(api.CodeSandboxState, err, "nothing in sandbox %s accepts connections on port %d", id, port).With("port", port).
			WithHint("Start the program that listens there first, on 0.0.0.0.")
	}
}

// Changes streams the deaths of sandboxes. It ends with ctx, and when the agent
// stops.
func (a *Agent) Changes(ctx context.Context) (<-chan host.Change, error) {
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	return a.changes.subscribe(ctx, a.stopped), nil
}

// find gives the entry of a sandbox, or sandbox.not_found.
func (a *Agent) find(ctx context.Context, id string) (*sandbox, error) {
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	s := a.lookup(id)
	if s == nil {
		return nil, notFound(id)
	}
	return s, nil
}
