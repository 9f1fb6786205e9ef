package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// metaFile is written last: a directory without it is not a snapshot.
const metaFile = "snapshot.json"

const snapshotVersion = 1

// snapshotMeta says what a snapshot needs of the host that restores it.
type snapshotMeta struct {
	Version     int              `json:"version"`
	Runtime     string           `json:"runtime"`
	Arch        string           `json:"arch"`
	CPUFeatures []string         `json:"cpu_features"`
	Image       string           `json:"image"`
	Guest       string           `json:"guest"`
	DiskBytes   int64            `json:"disk_bytes"`
	Files       map[string]int64 `json:"files"` // sizes
	CreatedAt   time.Time        `json:"created_at"`
}

// checkpointNames is the files of a gVisor checkpoint in the order in which its
// calls want them.
var checkpointNames = []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName}

// Snapshot implements driver.Machine.
func (m *machine) Snapshot(ctx context.Context, dir string) error {
	// A checkpoint is of all memory. The guest runs on while it is loaded.
	if err := m.Loaded(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return err
	}
	return m.whileAwake(ctx, func() error { return m.snapshot(ctx, dir) })
}

// snapshot writes a machine whose sentry runs.
func (m *machine) snapshot(ctx context.Context, dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return api.Errorf(api.CodeInvalidRequest, "the snapshot's directory exists already")
		}
		return fmt.Errorf("create snapshot directory: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := m.s.checkpoint(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fullDisk(dir) {
			return api.Wrap(api.CodeCapacity, err, "the host's disk is full; the snapshot was not taken and the sandbox goes on")
		}
		return fmt.Errorf("checkpoint: %w", err)
	}
	return m.writeMeta(dir)
}

// checkpoint saves the guest's memory and kernel state and lets it go on.
func (s *sentry) checkpoint(ctx context.Context, dir string) error {
	opts := control.SaveOpts{Metadata: statefile.CompressionLevelNone.ToMetadata(), HavePagesFile: true, Resume: true}
	defer func() { closeAll(opts.FilePayload.Files) }()
	for _, name := range checkpointNames {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		opts.FilePayload.Files = append(opts.FilePayload.Files, f)
	}
	return call(ctx, s.socket, boot.ContMgrCheckpoint, &opts, opts.FilePayload.Files)
}

func fullDisk(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) < 1<<20
}

func (m *machine) writeMeta(dir string) error {
	meta := snapshotMeta{
		Version: snapshotVersion, Runtime: Version(), Arch: runtime.GOARCH, CPUFeatures: cpuFeatures(),
		Image: m.image.Digest, Guest: m.d.cfg.GuestDigest, DiskBytes: m.s.limits.DiskBytes,
		Files: map[string]int64{}, CreatedAt: time.Now().UTC(),
	}
	for _, name := range checkpointNames {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		meta.Files[name] = st.Size()
	}
	b, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, metaFile), b, 0o600)
}

// checkSnapshot refuses a snapshot that would not restore here, saying why.
func (d *Driver) checkSnapshot(spec driver.Spec) (snapshotMeta, error) {
	meta, err := readMeta(spec)
	if err != nil {
		return meta, err
	}
	if why := d.incompatible(meta, spec); why != "" {
		return meta, api.Errorf(api.CodeSnapshotMismatch, "%s", why)
	}
	if meta.DiskBytes != spec.Limits.DiskBytes {
		return meta, api.Errorf(api.CodeUnsupported, "the snapshot's disk has %d bytes; the gvisor driver cannot resize it to %d", meta.DiskBytes, spec.Limits.DiskBytes)
	}
	for _, name := range checkpointNames {
		size, ok := meta.Files[name]
		st, err := os.Stat(filepath.Join(spec.Snapshot, name))
		if errors.Is(err, os.ErrNotExist) && spec.Remote[name] != nil && ok && size >= 0 {
			continue // a read past its end fails
		}
		if err != nil || !ok || st.Size() != size {
			return meta, api.Errorf(api.CodeSnapshotCorrupt, "the snapshot's file %s is missing or cut short", name)
		}
	}
	return meta, nil
}

// incompatible says what differs between a snapshot's needs and this host.
func (d *Driver) incompatible(meta snapshotMeta, spec driver.Spec) string {
	switch {
	case meta.Version != snapshotVersion:
		return fmt.Sprintf("the snapshot has format %d, this build reads %d", meta.Version, snapshotVersion)
	case meta.Runtime != Version():
		return fmt.Sprintf("the snapshot was made by runtime %s, this is %s", meta.Runtime, Version())
	case meta.Arch != runtime.GOARCH:
		return fmt.Sprintf("the snapshot is of a %s machine, this is %s", meta.Arch, runtime.GOARCH)
	case meta.Guest != d.cfg.GuestDigest:
		return fmt.Sprintf("the snapshot holds guest program %s, this build has %s", shortDigest(meta.Guest), shortDigest(d.cfg.GuestDigest))
	case meta.Image != spec.Image.Digest:
		return fmt.Sprintf("the snapshot is of image %s, not %s", shortDigest(meta.Image), shortDigest(spec.Image.Digest))
	}
	have := cpuFeatures()
	for _, f := range meta.CPUFeatures {
		if _, ok := slices.BinarySearch(have, f); !ok {
			return fmt.Sprintf("the snapshot needs the CPU feature %q, which this host does not have", f)
		}
	}
	return ""
}

// cpuFeatures lists the CPU's features as the kernel names them, sorted.
var cpuFeatures = sync.OnceValue(func() []string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(b), "\n") {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); ok && (name == "flags" || name == "Features") {
			f := strings.Fields(value)
			slices.Sort(f)
			return f
		}
	}
	return nil
})
