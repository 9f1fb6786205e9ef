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
func (m *machine) Snapshot(ctx context.Context, dir string) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return err
	}
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
	cg, err := m.cgroup()
	if err != nil {
		return err
	}
	if frozen(cg) {
		// The sentry must run to save itself.
		if err := setFrozen(ctx, cg, false); err != nil {
			return err
		}
		defer setFrozen(context.WithoutCancel(ctx), cg, true)
	}
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
func (d *Driver) checkSnapshot(spec driver.Spec) error {
	b, err := os.ReadFile(filepath.Join(spec.Snapshot, metaFile))
	if err != nil {
		return api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot is incomplete")
	}
	var meta snapshotMeta
	if err := json.Unmarshal(b, &meta); err != nil {
		return api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot's description is damaged")
	}
	if why := d.incompatible(meta, spec); why != "" {
		return api.Errorf(api.CodeSnapshotMismatch, "%s", why)
	}
	if meta.DiskBytes != spec.Limits.DiskBytes {
		return api.Errorf(api.CodeUnsupported, "the snapshot's disk has %d bytes; the gvisor driver cannot resize it to %d", meta.DiskBytes, spec.Limits.DiskBytes)
	}
	for name, size := range meta.Files {
		if st, err := os.Stat(filepath.Join(spec.Snapshot, name)); err != nil || st.Size() != size {
			return api.Errorf(api.CodeSnapshotCorrupt, "the snapshot's file %s is missing or cut short", name)
		}
	}
	return nil
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

// restore brings a snapshot to life in a waiting sentry.
func (s *sentry) restore(ctx context.Context, n driver.Network, dir string) error {
	opts := boot.RestoreOpts{HavePagesFile: true}
	defer func() { closeAll(opts.FilePayload.Files) }()
	for _, name := range checkpointNames {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return api.Wrap(api.CodeSnapshotCorrupt, err, "the snapshot is incomplete")
		}
		opts.FilePayload.Files = append(opts.FilePayload.Files, f)
	}
	link, err := linkArgs(s.conf, n, true)
	if err != nil {
		return err
	}
	defer closeAll(link.FilePayload.Files)
	if err := call(ctx, s.socket, boot.ContMgrSetNetworkArgs, link, link.FilePayload.Files); err != nil {
		return fmt.Errorf("set network: %w", err)
	}
	if err := call(ctx, s.socket, boot.ContMgrRestore, &opts, opts.FilePayload.Files); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}
