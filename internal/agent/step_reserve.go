package agent

import (
	"context"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// reserve takes the id, so that a second create is refused and a delete finds
// this one to cancel. While another create of the id goes on it waits for how
// that ends: a client that gave up and comes again must not meet its own shadow.
func (a *Agent) reserve(ctx context.Context, c *creation) error {
	s := newSandbox(record{
		Spec: c.spec,
		Sandbox: host.Sandbox{
			ID:        c.spec.ID,
			Template:  c.spec.Template,
			State:     host.StateRunning,
			Network:   c.spec.Network,
			CreatedAt: c.began.UTC(),
		},
	})
	s.cancelCreate = c.cancel
	for !a.add(s) {
		other := a.lookup(s.id)
		if other == nil {
			continue
		}
		select {
		case <-other.made:
		case <-ctx.Done():
			return contextError(ctx)
		}
		if a.lookup(s.id) == other {
			return api.Errorf(api.CodeSandboxExists, "sandbox %s exists", s.id)
		}
	}
	c.sandbox = s
	return nil
}

func (a *Agent) unreserve(_ context.Context, c *creation) error {
	a.drop(c.sandbox)
	return nil
}
