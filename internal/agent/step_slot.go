package agent

import "context"

// takeSlot takes a place on the host's network.
func (a *Agent) takeSlot(ctx context.Context, c *creation) error {
	slot, err := a.cfg.Network.Take(ctx)
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
