package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// nativeDisk is what a nativeHost keeps beside its running sandboxes. What a
// snapshot of it holds is the environment and the sizes of its sandbox: all that
// these sandboxes have of their own.
type nativeDisk struct {
	snapshots map[string]nativeSnapshot
	traffic   map[string]int64  // bytes each sandbox has received
	rolled    map[string]string // snapshot that each was rolled back to

	// Counts of what was asked for.
	wakes, hibernations, forks atomic.Int64

	// Hooks, set before use: each runs first, and its error is the answer.
	beforeHibernate, beforeWake func(ctx context.Context, id string) error
	beforeSnapshot              func(ctx context.Context, id string) error
	beforeFork                  func(ctx context.Context, children []host.Spec) error
	beforeRollback              func(ctx context.Context, id string) error
	onUsage                     func(id string)
	refuse                      map[string]error // starts from these snapshots
	deleteSnapshotErr           error
}

type nativeSnapshot struct {
	host.Snapshot
	Env map[string]string `json:"env"`
}

// hook runs a hook that may not be set.
func hook[T any](ctx context.Context, f func(context.Context, T) error, v T) error {
	if f == nil {
		return ctx.Err()
	}
	return f(ctx, v)
}

func (h *nativeHost) stateOf(b *nativeBox) host.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return b.State
}

// fromSnapshot fills in what a spec takes over from its snapshot.
func (h *nativeHost) fromSnapshot(spec *host.Spec) error {
	if spec.Snapshot == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.disk.snapshots[spec.Snapshot]
	if err := h.disk.refuse[spec.Snapshot]; err != nil {
		return err
	}
	if !ok {
		return api.Errorf(api.CodeSnapshotNotFound, "no snapshot %s here", spec.Snapshot)
	}
	env := maps.Clone(n.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, spec.Env)
	spec.Env, spec.Template, spec.DiskMB = env, n.Template, n.DiskMB
	spec.CPU, spec.MemoryMB = orElse(spec.CPU, n.CPU), orElse(spec.MemoryMB, n.MemoryMB)
	return nil
}

func (h *nativeHost) Fork(ctx context.Context, parent string, children []host.Spec) ([]host.Sandbox, error) {
	h.disk.forks.Add(1)
	if err := hook(ctx, h.disk.beforeFork, children); err != nil {
		return nil, err
	}
	p, err := h.box(parent)
	if err != nil {
		return nil, err
	}
	if h.stateOf(p) == host.StateHibernated {
		return nil, api.Errorf(api.CodeSandboxState, "sandbox %s is hibernated", parent)
	}
	var out []host.Sandbox
	for _, spec := range children {
		env := maps.Clone(p.spec.Env)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, spec.Env)
		spec.Env, spec.Template, spec.DiskMB = env, p.spec.Template, p.DiskMB
		spec.CPU, spec.MemoryMB = orElse(spec.CPU, p.CPU), orElse(spec.MemoryMB, p.MemoryMB)
		b, err := h.boot(ctx, spec, api.BootFork)
		if err != nil {
			for _, done := range out {
				_ = h.Delete(context.WithoutCancel(ctx), done.ID)
			}
			return nil, err
		}
		out = append(out, b.Sandbox)
	}
	return out, nil
}

func (h *nativeHost) Hibernate(ctx context.Context, id string) error {
	h.disk.hibernations.Add(1)
	if err := hook(ctx, h.disk.beforeHibernate, id); err != nil {
		return err
	}
	b, err := h.box(id)
	if err != nil {
		return err
	}
	if h.stateOf(b) != host.StateHibernated {
		h.stop(b)
		h.mu.Lock()
		b.State = host.StateHibernated
		h.mu.Unlock()
	}
	return nil
}

func (h *nativeHost) Wake(ctx context.Context, id string) (host.Sandbox, error) {
	h.disk.wakes.Add(1)
	if err := hook(ctx, h.disk.beforeWake, id); err != nil {
		return host.Sandbox{}, err
	}
	b, err := h.box(id)
	if err != nil {
		return host.Sandbox{}, err
	}
	if h.stateOf(b) != host.StateHibernated {
		return h.Get(ctx, id)
	}
	if b, err = h.boot(ctx, b.spec, api.BootWake); err != nil {
		return host.Sandbox{}, err
	}
	return b.Sandbox, nil
}

func (h *nativeHost) Rollback(ctx context.Context, id, snapshot string) (host.Sandbox, error) {
	if err := hook(ctx, h.disk.beforeRollback, id); err != nil {
		return host.Sandbox{}, err
	}
	b, err := h.box(id)
	if err != nil {
		return host.Sandbox{}, err
	}
	spec := b.spec
	spec.Snapshot, spec.Env = snapshot, nil
	if err := h.fromSnapshot(&spec); err != nil {
		return host.Sandbox{}, err
	}
	h.stop(b)
	if b, err = h.boot(ctx, spec, api.BootRestore); err != nil {
		return host.Sandbox{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.disk.rolled == nil {
		h.disk.rolled = map[string]string{}
	}
	h.disk.rolled[id] = snapshot
	return b.Sandbox, nil
}

func (h *nativeHost) Snapshot(ctx context.Context, id string, spec host.SnapshotSpec) (host.Snapshot, error) {
	if err := hook(ctx, h.disk.beforeSnapshot, id); err != nil {
		return host.Snapshot{}, err
	}
	b, err := h.box(id)
	if err != nil {
		return host.Snapshot{}, err
	}
	if h.stateOf(b) == host.StateHibernated {
		return host.Snapshot{}, api.Errorf(api.CodeSandboxState, "sandbox %s is hibernated", id)
	}
	return h.keep(nativeSnapshot{Env: b.spec.Env, Snapshot: host.Snapshot{
		ID: spec.ID, SandboxID: id, Template: b.Template, Driver: b.Driver, Memory: spec.Memory,
		CPU: b.CPU, MemoryMB: b.MemoryMB, DiskMB: b.DiskMB, SizeBytes: 1000, PauseMS: 1.5, CreatedAt: time.Now(),
	}})
}

func (h *nativeHost) keep(n nativeSnapshot) (host.Snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.disk.snapshots[n.ID]; ok {
		return host.Snapshot{}, api.Errorf(api.CodeSnapshotExists, "snapshot %s exists", n.ID)
	}
	if h.disk.snapshots == nil {
		h.disk.snapshots = map[string]nativeSnapshot{}
	}
	h.disk.snapshots[n.ID] = n
	return n.Snapshot, nil
}

func (h *nativeHost) GetSnapshot(_ context.Context, id string) (host.Snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.disk.snapshots[id]
	if !ok {
		return host.Snapshot{}, api.Errorf(api.CodeSnapshotNotFound, "no snapshot %s here", id)
	}
	return n.Snapshot, nil
}

func (h *nativeHost) Snapshots(context.Context) ([]host.Snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []host.Snapshot
	for _, n := range h.disk.snapshots {
		out = append(out, n.Snapshot)
	}
	return out, nil
}

func (h *nativeHost) DeleteSnapshot(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.disk.deleteSnapshotErr != nil {
		return h.disk.deleteSnapshotErr
	}
	delete(h.disk.snapshots, id)
	return nil
}

func (h *nativeHost) Export(_ context.Context, id string) (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	data, err := json.Marshal(h.disk.snapshots[id])
	return io.NopCloser(bytes.NewReader(data)), err
}

func (h *nativeHost) Import(_ context.Context, spec host.SnapshotSpec, file io.Reader) (host.Snapshot, error) {
	var n nativeSnapshot
	if err := json.NewDecoder(file).Decode(&n); err != nil {
		return host.Snapshot{}, api.Wrap(api.CodeSnapshotCorrupt, err, "the file is not a snapshot")
	}
	n.ID, n.SandboxID = spec.ID, ""
	return h.keep(n)
}

// snapshotCount is how many snapshots the host has.
func (h *nativeHost) snapshotCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.disk.snapshots)
}

// cpuSeconds is what a process and all that descends from it have used.
func cpuSeconds(root int) float64 {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent, used := map[int]int{}, map[int]float64{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// The name of the program, in brackets, may hold anything.
		text := string(data)
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(f) < 15 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent[pid], _ = strconv.Atoi(f[1])
		for _, ticks := range f[11:15] { // its own and that of children it waited for
			n, _ := strconv.ParseFloat(ticks, 64)
			used[pid] += n / 100
		}
	}
	var sum float64
	for pid, n := range used {
		for p := pid; p > 1; p = parent[p] {
			if p == root {
				sum += n
				break
			}
		}
	}
	return sum
}
