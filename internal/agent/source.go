package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// source is what machines start from instead of their template: what another
// machine was at one moment. Its bytes stay until every lease has ended, which
// for a machine is when it is loaded.
type source struct {
	kept   kept
	mode   api.BootMode // of machines that get memory from it
	parent string       // of a fork
	id     string       // of the snapshot, where it has one that people know
	dir    string
	remote map[string]io.ReaderAt

	mu     sync.Mutex
	leases int
	close  func() error
}

// lease keeps the bytes until the function that it gives is called, which may be
// called again.
func (s *source) lease() (end func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases++
	return sync.OnceValue(func() error {
		s.mu.Lock()
		s.leases--
		last := s.leases == 0
		s.mu.Unlock()
		if last {
			return s.close()
		}
		return nil
	})
}

// boot is the mode of machines that start from it.
func (s *source) boot() api.BootMode {
	if !s.kept.Memory {
		return api.BootCold
	}
	return s.mode
}

// knownToken is what the guest asks for before it is told another one.
func (s *source) knownToken() string {
	if !s.kept.Memory {
		return ""
	}
	return s.kept.Token
}

// openKept gives a kept snapshot as a source, with one lease on it.
func (a *Agent) openKept(ctx context.Context, id string, mode api.BootMode) (*source, func() error, error) {
	keeper, err := a.keeper()
	if err != nil {
		return nil, nil, err
	}
	opened, err := keeper.Open(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	k, err := parseKept(opened.Record.Data)
	if err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	s := &source{kept: k, mode: mode, dir: opened.Dir, remote: opened.Files, close: opened.Close}
	if api.ValidSnapshotID(id) {
		s.id = id
	}
	return s, s.lease(), nil
}

// diskFile is the one file of a snapshot without memory.
const diskFile = "disk"

// into puts the source into what a driver starts. A disk whose bytes are
// elsewhere is fetched to scratch first.
func (s *source) into(ctx context.Context, spec *driver.Spec, scratch string) error {
	if s.kept.Memory {
		spec.Snapshot, spec.Remote = s.dir, s.remote
		return nil
	}
	spec.Disk = filepath.Join(s.dir, diskFile)
	if remote := s.remote[diskFile]; remote != nil {
		spec.Disk = filepath.Join(scratch, diskFile)
		return fetch(ctx, remote, spec.Disk)
	}
	return nil
}

// fetch copies a file of unknown length.
func fetch(ctx context.Context, from io.ReaderAt, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fetch the snapshot's disk: %w", err)
	}
	_, err = io.CopyBuffer(f, &contextReader{ctx, io.NewSectionReader(from, 0, math.MaxInt64)}, make([]byte, 1<<20))
	return errors.Join(err, f.Close())
}

// contextReader ends a long copy when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, contextError(c.ctx)
	}
	return c.r.Read(p)
}

// settleSource chooses the driver, the image and the sizes of a machine that
// starts from a source.
func (a *Agent) settleSource(ctx context.Context, s *source, wantDriver string, want sizes) (driver.Driver, origin, error) {
	name, err := s.driverName(wantDriver)
	if err != nil {
		return nil, origin{}, err
	}
	d, probe, err := a.drivers.usable(ctx, name)
	if err != nil {
		return nil, origin{}, err
	}
	can := probe.Capabilities
	o := origin{sizes: want.or(s.kept.sizes())}
	switch {
	case s.kept.Memory && !can.Snapshot, !s.kept.Memory && !can.Disk:
		return nil, origin{}, api.Errorf(api.CodeUnsupported, "driver %s cannot start from this snapshot", name)
	case o.sizes.diskMB != s.kept.DiskMB:
		return nil, origin{}, api.Errorf(api.CodeInvalidRequest, "the snapshot's disk has %d MiB and cannot become one of %d MiB", s.kept.DiskMB, o.sizes.diskMB)
	case s.kept.Memory && !o.sizes.servedBy(s.kept.sizes(), can.ResizeOnCreate):
		return nil, origin{}, api.Errorf(api.CodeUnsupported, "driver %s cannot give a restored sandbox other CPUs or memory than its snapshot has", name)
	}
	o.image, err = a.cfg.Images.Resolve(s.kept.Image)
	if err != nil {
		return nil, origin{}, api.Wrap(api.CodeOf(err), err, "the image that the snapshot needs cannot be used: %s", api.AsError(err).Message)
	}
	return d, o, nil
}

// driverName is the driver that a machine from the source has. Memory belongs to
// the driver that wrote it; files do not.
func (s *source) driverName(want string) (string, error) {
	if want == "" || want == driverAuto || want == s.kept.Driver {
		return s.kept.Driver, nil
	}
	if s.kept.Memory {
		return "", api.Errorf(api.CodeInvalidRequest, "the snapshot is one of driver %s and cannot be started by %s", s.kept.Driver, want)
	}
	return want, nil
}

// removeScratch removes the copy of a disk that into made, if it did.
func removeScratch(dir string) error {
	err := os.Remove(filepath.Join(dir, diskFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
