package agent

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// SetNetwork replaces what a sandbox may reach. The record follows what holds: a
// crash in between leaves the record as it was, and the next start makes that
// hold again.
func (a *Agent) SetNetwork(ctx context.Context, id string, network host.Network) error {
	s, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	sb, visible := s.view()
	switch {
	case !visible:
		return notFound(id)
	case sb.Network.Equal(network):
		return nil
	}
	before, slot := sb.Network, s.record().Slot
	if slot != nil {
		if err := a.cfg.Network.Admit(ctx, *slot, id, network); err != nil {
			return err
		}
	}
	rec := s.update(func(r *record) { r.Sandbox.Network = network })
	// Durably: a sandbox that sleeps must not wake under older rules because the
	// host lost power.
	if err := a.journal.saveDurably(rec); err != nil {
		s.update(func(r *record) { r.Sandbox.Network = before })
		if slot != nil {
			ctx, cancel := detached(ctx)
			defer cancel()
			err = errors.Join(err, a.cfg.Network.Admit(ctx, *slot, id, before))
		}
		return err
	}
	return nil
}

// NetworkLog reads what a sandbox has contacted.
func (a *Agent) NetworkLog(ctx context.Context, id string, since int64, limit int) (api.ConnectionLog, error) {
	s, err := a.find(ctx, id)
	if err != nil {
		return api.ConnectionLog{}, err
	}
	if _, visible := s.view(); !visible {
		return api.ConnectionLog{}, notFound(id)
	}
	return a.cfg.Network.Log(id, since, limit)
}
