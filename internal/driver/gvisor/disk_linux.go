package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/gvisor/hold"
)

// SaveDisk implements driver.Machine. The guest stands still meanwhile: gVisor
// fails when a file grows while it is written.
func (m *machine) SaveDisk(ctx context.Context, path string) (err error) {
	if err := m.Loaded(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return api.Errorf(api.CodeInvalidRequest, "the file for the disk exists already")
	}
	if err != nil {
		return fmt.Errorf("create file for the disk: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
		}
	}()
	return m.whileAwake(ctx, func() error { return m.saveDisk(ctx, f) })
}

func (m *machine) saveDisk(ctx context.Context, f *os.File) error {
	var st unix.Stat_t
	if err := unix.Stat(m.s.upper, &st); err != nil {
		return fmt.Errorf("look at the upper layer: %w", err)
	}
	end, err := m.s.pause(ctx)
	if err != nil {
		return err
	}
	err = m.withMemory(ctx, 2*st.Blocks*512, func() error {
		defer end.Close()
		return m.s.tarUpper(ctx, f, m.s.limits.DiskBytes+diskSlack)
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errDiskTooLarge):
		return api.Errorf(api.CodeUnsupported, "the files on the sandbox's disk of %d MiB are larger than it: files with holes cannot be saved", m.s.limits.DiskBytes>>20)
	case err != nil && fullDisk(f.Name()):
		return api.Wrap(api.CodeCapacity, err, "the host's disk is full; the disk was not saved and the sandbox goes on")
	case err != nil:
		return fmt.Errorf("save the upper layer: %w", err)
	}
	return nil
}

// diskSlack is what a saved disk may take beside the bytes of its files: for names,
// empty files and links.
const diskSlack = 16 << 20

// withMemory does something for which the sentry needs more memory than the guest
// may have: gVisor holds whole files in memory when it writes a disk, and all of
// them when it reads one. The guest's limit is back when it returns.
func (m *machine) withMemory(ctx context.Context, extra int64, do func() error) error {
	cg, err := m.cgroup()
	if err != nil {
		return err
	}
	if err := setMemoryLimit(cg, m.s.limits.MemoryBytes+extra); err != nil {
		return fmt.Errorf("make room for the disk: %w", err)
	}
	if err := do(); err != nil {
		return errors.Join(err, lowerMemoryLimit(cg, m.s.limits.MemoryBytes))
	}
	if err := m.s.equip(ctx, hold.Collect(), nil); err != nil {
		return err
	}
	return lowerMemoryLimit(cg, m.s.limits.MemoryBytes)
}

// startFromDisk boots the guest with the upper layer that a disk holds.
func (m *machine) startFromDisk(ctx context.Context, spec driver.Spec) error {
	st, err := os.Stat(spec.Disk)
	if err != nil {
		return err
	}
	return m.withMemory(ctx, 3*st.Size(), func() error { return m.startCold(ctx, spec) })
}

// startCold boots the guest.
func (m *machine) startCold(ctx context.Context, spec driver.Spec) error {
	if err := m.s.start(ctx, spec.Network); err != nil {
		return err
	}
	return m.awaitGuest(ctx)
}

var errDiskTooLarge = errors.New("the saved disk is larger than the disk may be")

// tarUpper has the sentry write its upper layer as a tar archive. It writes to a
// pipe: with the file itself it could fill the host's disk.
func (s *sentry) tarUpper(ctx context.Context, f *os.File, limit int64) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		defer r.Close() // makes the sentry stop writing
		n, err := io.Copy(f, io.LimitReader(r, limit+1))
		if err == nil && n > limit {
			err = errDiskTooLarge
		}
		copied <- err
	}()
	err = call(ctx, s.socket, boot.FsTarRootfsUpperLayer, &control.TarRootfsUpperLayerOpts{ContainerID: s.id}, []*os.File{w})
	w.Close()
	if ctx.Err() != nil {
		r.Close()
	}
	if copyErr := <-copied; copyErr != nil {
		return copyErr
	}
	return err
}
