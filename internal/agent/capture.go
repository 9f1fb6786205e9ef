package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// taking writes a machine to a directory that must not exist yet, and removes it
// again when it fails.
type taking func(ctx context.Context, m driver.Machine, dir string) error

func takeMemory(ctx context.Context, m driver.Machine, dir string) error {
	return m.Snapshot(ctx, dir)
}

func takeDisk(ctx context.Context, m driver.Machine, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the snapshot's directory: %w", err)
	}
	err := m.SaveDisk(ctx, filepath.Join(dir, diskFile))
	if err != nil {
		os.RemoveAll(dir)
	}
	return err
}

// capture takes a sandbox, running or paused, and says what it took. The caller
// has the sandbox's turn.
func (a *Agent) capture(ctx context.Context, s *sandbox, memory bool, dir string, how taking) (kept, error) {
	m, _, err := s.current()
	if err != nil {
		return kept{}, err
	}
	rec := s.record()
	probe := a.drivers.probeOf(rec.Sandbox.Driver)
	can := probe.Capabilities
	if memory && !can.Snapshot || !memory && !can.Disk {
		return kept{}, api.Errorf(api.CodeUnsupported, "driver %s cannot take this kind of snapshot", rec.Sandbox.Driver)
	}
	k, err := a.describe(rec)
	if err != nil {
		return kept{}, err
	}
	k.Memory, k.DriverVersion = memory, probe.Version
	began := time.Now()
	if err := how(ctx, m, dir); err != nil {
		return kept{}, captureError(ctx, s.id, err)
	}
	k.PauseMS = milliseconds(time.Since(began))
	return k, nil
}

// describe says what a sandbox is made of, for one that will start from it.
func (a *Agent) describe(rec record) (kept, error) {
	image := rec.Image
	if image == "" { // the record is of an agent that did not note it
		img, err := a.cfg.Images.Resolve(rec.Spec.Template)
		if err != nil {
			return kept{}, err
		}
		image = img.Digest
	}
	sb := rec.Sandbox
	return kept{
		Version: keptVersion, SandboxID: sb.ID, Template: sb.Template, Image: image, Driver: sb.Driver,
		CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB, Token: rec.Spec.Token, Env: rec.Spec.Env,
	}, nil
}

// captureError gives a failed capture its code. The sandbox goes on.
func captureError(ctx context.Context, id string, err error) error {
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case api.CodeOf(err) != api.CodeInternal:
		return err
	default:
		return api.Wrap(api.CodeInternal, err, "sandbox %s could not be captured; it goes on as before", id)
	}
}

// sourceOf gives what capture wrote as something to start from.
func sourceOf(k kept, dir string, mode api.BootMode) *source {
	return &source{kept: k, mode: mode, dir: dir, close: func() error { return os.RemoveAll(dir) }}
}

// sleeping reports whether a sandbox is hibernated.
func (s *sandbox) sleeping() bool { return s.record().Sandbox.State == host.StateHibernated }
