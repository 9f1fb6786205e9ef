package agent

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// Wake brings a hibernated sandbox back. Concurrent calls share one wake, which
// goes on when a caller leaves. A failed one leaves it asleep.
func (a *Agent) Wake(ctx context.Context, id string) (host.Sandbox, error) {
	began := time.Now()
	s, err := a.find(ctx, id)
	if err != nil {
		return host.Sandbox{}, err
	}
	err = a.flights.do(ctx, "wake "+id, func(ctx context.Context) error {
		if err := s.take(ctx); err != nil {
			return err
		}
		if _, visible := s.view(); !visible || !s.sleeping() {
			defer s.give()
			_, _, err := s.current()
			return err
		}
		return a.revive(ctx, "wake", s, s.record().Sleep, api.BootWake, began)
	})
	if err != nil {
		return host.Sandbox{}, err
	}
	return a.Get(ctx, id)
}
