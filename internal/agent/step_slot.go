package agent

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
)

// takeSlot takes a place on the host's network.
func (a *Agent) takeSlot(ctx context.Context, c *creation) error {
	slot, err := a.place(ctx, c.spec.ID, c.spec.Network)
	if err != nil {
		return err
	}
	c.sandbox.update(func(r *record) {
		r.Slot = &slot
		r.Sandbox.GuestIP = slot.Address.Addr().String()
	})
	return nil
}

func (a *Agent) releaseSlot(ctx context.Context, c *creation) error {
	slot := c.sandbox.record().Slot
	return a.cfg.Network.Release(ctx, *slot)
}

// place takes a slot in which the rules of a sandbox hold.
func (a *Agent) place(ctx context.Context, id string, network host.Network) (hostnet.Slot, error) {
	slot, err := a.cfg.Network.Take(ctx)
	if err != nil {
		return slot, err
	}
	if err := a.cfg.Network.Admit(ctx, slot, id, network); err != nil {
		ctx, cancel := detached(ctx)
		defer cancel()
		return slot, errors.Join(err, a.cfg.Network.Release(ctx, slot))
	}
	return slot, nil
}
