package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/hostnet"
)

// startMachine restores the source or the template's snapshot, or starts cold
// where there is none. A template's snapshot that is refused is thrown away and
// the create waits for a new one, once; a source is someone's own.
func (a *Agent) startMachine(ctx context.Context, c *creation) error {
	err := a.startOnce(ctx, c)
	if err == nil || c.source != nil || !a.catalogue.refuse(c.origin, err) {
		return err
	}
	a.log.Warn("a snapshot was refused and is baked anew", "sandbox", c.spec.ID, "snapshot", c.origin.snapshot, "error", err)
	if err := a.resolveTemplate(ctx, c); err != nil {
		return err
	}
	if err := a.journal.emptyMachineDir(c.spec.ID, 0); err != nil {
		return err
	}
	return a.startOnce(ctx, c)
}

func (a *Agent) startOnce(ctx context.Context, c *creation) error {
	rec := c.sandbox.record()
	spec := driver.Spec{
		ID:       c.spec.ID,
		Dir:      a.journal.machineDir(c.spec.ID, 0),
		Image:    driver.Image{Path: c.origin.image.Path, Digest: c.origin.image.Digest},
		Snapshot: c.origin.snapshot,
		Limits:   c.origin.sizes.limits(),
		Network:  networkOf(*rec.Slot),
		Hostname: hostname(c.spec.ID),
	}
	c.boot = api.BootRestore
	if spec.Snapshot == "" {
		c.boot = api.BootCold
	}
	if c.source != nil {
		c.boot = c.source.boot()
		if err := c.source.into(ctx, &spec, a.journal.dir(c.spec.ID)); err != nil {
			return err
		}
	}
	m, err := a.launch(ctx, c.driver, c.boot, spec)
	if err != nil {
		return err
	}
	a.catalogue.worked(c.origin)
	c.machine = m
	c.sandbox.setMachine(m)
	return nil
}

// launch starts a machine when it is its turn: more starts at a time than the
// host has CPUs for would only make each of them late.
func (a *Agent) launch(ctx context.Context, d driver.Driver, mode api.BootMode, spec driver.Spec) (driver.Machine, error) {
	select {
	case a.starts <- struct{}{}:
		defer func() { <-a.starts }()
	case <-ctx.Done():
		return nil, contextError(ctx)
	}
	limit := a.bootTimeout(mode)
	if len(spec.Remote) > 0 {
		limit = a.cfg.ColdTimeout // its bytes come from afar
	}
	return bounded(ctx, limit, "start", func(ctx context.Context) (driver.Machine, error) {
		return d.Start(ctx, spec)
	})
}

func (a *Agent) stopMachine(ctx context.Context, c *creation) error {
	return c.machine.Stop(ctx)
}

func (a *Agent) bootTimeout(mode api.BootMode) time.Duration {
	if mode == api.BootCold {
		return a.cfg.ColdTimeout
	}
	return a.cfg.BootTimeout
}

// errTooSlow is in the chain of an error of bounded: it says nothing about what
// was started, only about the host.
var errTooSlow = errors.New("over its own time limit")

// bounded does work within a limit of its own. Exceeding that limit, rather
// than the caller's, is sandbox.boot_failed.
func bounded[T any](ctx context.Context, limit time.Duration, what string, work func(context.Context) (T, error)) (T, error) {
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	v, err := work(inner)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		err = api.Wrap(api.CodeBootFailed, fmt.Errorf("%w: %w", errTooSlow, err), "the sandbox did not %s within %s", what, limit)
	}
	return v, err
}

// networkOf says a slot in the driver's words.
func networkOf(s hostnet.Slot) driver.Network {
	return driver.Network{
		Namespace:  s.Namespace,
		Interface:  s.Interface,
		MAC:        s.MAC,
		Address:    s.Address,
		Gateway:    s.Gateway,
		GatewayMAC: s.GatewayMAC,
		MTU:        s.MTU,
	}
}

// hostname is what a sandbox calls itself: the start of its id.
func hostname(id string) string { return id[:12] }
