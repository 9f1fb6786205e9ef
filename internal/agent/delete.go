package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// Delete ends a sandbox and removes all it had. Concurrent deletes of one id
// share the work, which goes on when a caller leaves. A create in progress is
// cancelled and waited for.
func (a *Agent) Delete(ctx context.Context, id string) error {
	if err := a.await(ctx); err != nil {
		return err
	}
	s := a.lookup(id)
	if s == nil {
		return nil
	}
	return a.flights.do(ctx, "delete "+id, func(ctx context.Context) error {
		ctx, cancel := detached(ctx)
		defer cancel()
		began, sb := time.Now(), s.record().Sandbox
		err := a.remove(ctx, s)
		a.observe(Observation{Op: "delete", Driver: sb.Driver, Template: sb.Template, Took: time.Since(began), Err: err})
		return err
	})
}

// remove is the work of a delete. Forgetting the record comes first: a crash
// after it leaves a half-made sandbox, which the next start removes.
func (a *Agent) remove(ctx context.Context, s *sandbox) error {
	s.cancelCreate(api.Errorf(api.CodeCanceled, "sandbox %s was deleted while it was being created", s.id))
	select {
	case <-s.made:
	case <-ctx.Done():
		return contextError(ctx)
	}
	if a.lookup(s.id) != s {
		return nil // its create failed and took everything back, or it is gone
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	s.show(false)
	err := a.removeParts(ctx, s)
	if err != nil {
		// It stays in the table as failed, so that a delete can be repeated.
		s.update(func(r *record) {
			r.Sandbox.State = host.StateFailed
			r.Sandbox.Error = api.AsError(err)
		})
		s.show(true)
		return err
	}
	a.drop(s)
	return nil
}

// removeParts does what a delete consists of. Repeated, it goes on where it
// failed.
func (a *Agent) removeParts(ctx context.Context, s *sandbox) error {
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"forget", func() error { return a.journal.forget(s.id) }},
		{"release", func() error { return a.release(ctx, s) }},
		{"sleep", func() error { return a.dropSleep(ctx, s.record().Sleep) }},
		{"remove", func() error { return a.journal.remove(s.id) }},
	} {
		if err := a.cfg.Fault.at("delete.%s.before", part.name); err != nil {
			return err
		}
		if err := part.do(); err != nil {
			return err
		}
		if err := a.cfg.Fault.at("delete.%s.after", part.name); err != nil {
			return err
		}
	}
	return nil
}
