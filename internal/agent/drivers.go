package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// probeAgain is how long the answer of a driver that cannot be used holds. That
// of a usable one holds for the agent's life.
const probeAgain = 10 * time.Second

// driverAuto asks for the default driver by name.
const driverAuto = "auto"

// drivers are the isolation drivers of this host and what they can do here.
type drivers struct {
	list     []driver.Driver
	fallback string // the configured default; empty is the first usable

	mu     sync.Mutex
	probes map[string]driver.Probe
	probed time.Time
}

func newDrivers(list []driver.Driver, fallback string) *drivers {
	if fallback == driverAuto {
		fallback = ""
	}
	return &drivers{list: list, fallback: fallback, probes: map[string]driver.Probe{}}
}

// probe asks every driver that is not known to be usable.
func (d *drivers) probe(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.probeLocked(ctx)
}

func (d *drivers) probeLocked(ctx context.Context) {
	for _, drv := range d.list {
		if !d.probes[drv.Name()].Usable {
			d.probes[drv.Name()] = drv.Probe(ctx)
		}
	}
	d.probed = time.Now()
}

// usable gives the driver of a create and what it can do; name may be empty or
// auto. A driver that does not exist or cannot run here is refused with
// driver.unavailable and the state of every driver.
func (d *drivers) usable(ctx context.Context, name string) (driver.Driver, driver.Probe, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	drv, probe, ok := d.pick(name)
	if !ok && time.Since(d.probed) > probeAgain {
		d.probeLocked(ctx)
		drv, probe, ok = d.pick(name)
	}
	if !ok {
		return nil, driver.Probe{}, d.unavailable(name)
	}
	return drv, probe, nil
}

func (d *drivers) pick(name string) (driver.Driver, driver.Probe, bool) {
	if name == "" || name == driverAuto {
		name = d.fallback
	}
	for _, drv := range d.list {
		p := d.probes[drv.Name()]
		if p.Usable && (name == "" || name == drv.Name()) {
			return drv, p, true
		}
	}
	return nil, driver.Probe{}, false
}

func (d *drivers) unavailable(name string) error {
	var states []string
	exists := false
	for _, drv := range d.list {
		p := d.probes[drv.Name()]
		state := "usable"
		if !p.Usable {
			state = p.Reason
		}
		states = append(states, drv.Name()+": "+state)
		exists = exists || drv.Name() == name
	}
	known := "this host has none"
	if len(states) > 0 {
		known = strings.Join(states, "; ")
	}
	switch {
	case name == "" || name == driverAuto:
		return api.Errorf(api.CodeDriverUnavailable, "no isolation driver can be used on this host (%s)", known)
	case exists:
		return api.Errorf(api.CodeDriverUnavailable, "driver %q cannot be used on this host (%s)", name, known)
	default:
		return api.Errorf(api.CodeDriverUnavailable, "there is no driver %q (%s)", name, known)
	}
}

// named gives a driver whether or not it is usable; nil if there is none.
func (d *drivers) named(name string) driver.Driver {
	for _, drv := range d.list {
		if drv.Name() == name {
			return drv
		}
	}
	return nil
}

// describe gives every driver as it was probed, and the name of the default.
func (d *drivers) describe() (infos []host.DriverInfo, fallback, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, drv := range d.list {
		p := d.probes[drv.Name()]
		infos = append(infos, host.DriverInfo{Name: drv.Name(), Usable: p.Usable, Reason: p.Reason, Version: p.Version})
	}
	if drv, p, ok := d.pick(""); ok {
		return infos, drv.Name(), p.Version
	}
	return infos, d.fallback, ""
}

// sweep ends every machine of an earlier agent that keep does not name.
func (d *drivers) sweep(ctx context.Context, keep map[string][]driver.Handle) error {
	var errs []error
	for _, drv := range d.list {
		errs = append(errs, drv.Sweep(ctx, keep[drv.Name()]))
	}
	return errors.Join(errs...)
}

func (d *drivers) close(ctx context.Context) error {
	var errs []error
	for _, drv := range d.list {
		errs = append(errs, drv.Close(ctx))
	}
	return errors.Join(errs...)
}

// capabilities of a driver as it was probed; false if it is not usable.
func (d *drivers) capabilities(name string) (driver.Capabilities, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.probes[name]
	return p.Capabilities, p.Usable
}

// probeOf gives what is known of a driver.
func (d *drivers) probeOf(name string) driver.Probe {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.probes[name]
}
