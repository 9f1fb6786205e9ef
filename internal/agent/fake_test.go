package agent

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// The fakes let the race detector, which cannot look into gVisor, look at the
// agent, and make a driver fail where a real one does not on demand. Everything
// that is about sandboxes is tested on real ones.

// fakeDriver's machines are web servers that say yes.
type fakeDriver struct {
	capabilities driver.Capabilities

	mu       sync.Mutex
	alive    map[string]*fakeMachine
	starts   []driver.Spec
	prepared int
	refuse   func(driver.Spec) error // asked by Start
	capture  func() error            // asked by Snapshot, Park and SaveDisk
	loading  chan struct{}           // what Loaded waits for; nil: nothing
}

func newFakeDriver() *fakeDriver {
	return &fakeDriver{
		capabilities: driver.Capabilities{Snapshot: true, Disk: true, Pause: true, ResizeOnCreate: true},
		alive:        map[string]*fakeMachine{},
	}
}

func (d *fakeDriver) Name() string { return "fake" }
func (d *fakeDriver) Probe(context.Context) driver.Probe {
	return driver.Probe{Usable: true, Reason: "It is a fake.", Version: "1", Capabilities: d.capabilities}
}
func (d *fakeDriver) Attach(context.Context, driver.Handle) (driver.Machine, error) {
	return nil, api.Errorf(api.CodeSandboxDied, "fakes die with their process")
}
func (d *fakeDriver) Sweep(context.Context, []driver.Handle) error { return nil }
func (d *fakeDriver) Close(context.Context) error                  { return nil }
func (d *fakeDriver) Prepare(context.Context, driver.Spec, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prepared++
}

func (d *fakeDriver) Start(ctx context.Context, spec driver.Spec) (driver.Machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starts = append(d.starts, spec)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if d.refuse != nil {
		if err := d.refuse(spec); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(spec.Dir, "upper"), nil, 0o600); err != nil {
		return nil, err
	}
	m := &fakeMachine{d: d, id: spec.ID, loading: d.loading, ended: make(chan struct{})}
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	d.alive[spec.ID] = m
	return m, nil
}

func (d *fakeDriver) mayCapture() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.capture == nil {
		return nil
	}
	return d.capture()
}

// set changes how the driver behaves.
func (d *fakeDriver) set(change func(*fakeDriver)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// machine gives the machine of a sandbox; nil if there is none.
func (d *fakeDriver) machine(id string) *fakeMachine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive[id]
}

// count is how many machines are alive.
func (d *fakeDriver) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.alive)
}

type fakeMachine struct {
	d       *fakeDriver
	id      string
	server  *httptest.Server
	loading chan struct{}
	parked  atomic.Bool
	paused  atomic.Bool
	once    sync.Once
	ended   chan struct{}
}

func (m *fakeMachine) Handle() driver.Handle {
	return driver.Handle{Driver: "fake", Version: 1, Data: []byte(`{}`)}
}
func (m *fakeMachine) Dial(ctx context.Context, _ int) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", m.server.Listener.Addr().String())
}
func (m *fakeMachine) Snapshot(_ context.Context, dir string) error {
	if err := m.d.mayCapture(); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "memory"), []byte(m.id), 0o600)
}
func (m *fakeMachine) Park(ctx context.Context, dir string) (func(), error) {
	if err := m.Snapshot(ctx, dir); err != nil {
		return nil, err
	}
	m.parked.Store(true)
	return func() { m.parked.Store(false) }, nil
}
func (m *fakeMachine) SaveDisk(_ context.Context, path string) error {
	if err := m.d.mayCapture(); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("disk"), 0o600)
}
func (m *fakeMachine) Loaded(ctx context.Context) error {
	if m.loading == nil {
		return nil
	}
	select {
	case <-m.loading:
		return nil
	case <-m.ended:
		return api.Errorf(api.CodeSandboxDied, "it ended before it was loaded")
	case <-ctx.Done():
		return ctx.Err()
	}
}
func (m *fakeMachine) Pause(context.Context) error                 { m.paused.Store(true); return nil }
func (m *fakeMachine) Resume(context.Context) error                { m.paused.Store(false); return nil }
func (m *fakeMachine) Usage(context.Context) (driver.Usage, error) { return driver.Usage{PID: 1}, nil }
func (m *fakeMachine) Boot() driver.Boot                           { return driver.Boot{} }
func (m *fakeMachine) Stop(context.Context) error                  { m.end(); return nil }

func (m *fakeMachine) end() {
	m.once.Do(func() {
		m.server.Close()
		m.d.mu.Lock()
		delete(m.d.alive, m.id)
		m.d.mu.Unlock()
		close(m.ended)
	})
}

func (m *fakeMachine) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-m.ended:
		return driver.Exit{Reason: "It was a fake."}, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

// fakeNetwork counts.
type fakeNetwork struct {
	mu    sync.Mutex
	next  int
	taken map[int]bool
}

func (n *fakeNetwork) Setup(context.Context) error        { return nil }
func (n *fakeNetwork) Run(ctx context.Context) error      { <-ctx.Done(); return nil }
func (n *fakeNetwork) Sweep(context.Context, []int) error { return nil }
func (n *fakeNetwork) Close(context.Context) error        { return nil }
func (n *fakeNetwork) Free() int                          { return 64 }
func (n *fakeNetwork) Nameservers() []netip.Addr          { return nil }
func (n *fakeNetwork) Take(context.Context) (hostnet.Slot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	n.taken[n.next] = true
	return hostnet.Slot{Index: n.next, Address: netip.MustParsePrefix("10.0.0.2/30")}, nil
}
func (n *fakeNetwork) Adopt(_ context.Context, index int) (hostnet.Slot, error) {
	return hostnet.Slot{Index: index}, nil
}
func (n *fakeNetwork) Release(_ context.Context, s hostnet.Slot) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, s.Index)
	return nil
}

func (n *fakeNetwork) Admit(context.Context, hostnet.Slot, string, host.Network) error { return nil }
func (n *fakeNetwork) Log(string, int64, int) (api.ConnectionLog, error) {
	return api.ConnectionLog{Connections: []api.Connection{}}, nil
}
func (n *fakeNetwork) Keep([]string) error                        { return nil }
func (n *fakeNetwork) Forget(string)                              {}
func (n *fakeNetwork) OnDenied(func(id string, c api.Connection)) {}

// fakeImages has every image that is asked for, but one.
type fakeImages struct{}

func (fakeImages) Tag(string, string) error { return nil }
func (fakeImages) Add(context.Context, string, int64, io.Reader) (image.Image, error) {
	return image.Image{}, api.Errorf(api.CodeUnsupported, "fakes take no images in")
}
func (fakeImages) Tags() (map[string]string, error) {
	return map[string]string{testTemplate: fakeDigest}, nil
}
func (fakeImages) Resolve(name string) (image.Image, error) {
	if name != testTemplate && name != fakeDigest {
		return image.Image{}, api.Errorf(api.CodeTemplateNotFound, "there is no template %q", name)
	}
	return image.Image{Digest: fakeDigest, Path: "/nowhere"}, nil
}

var fakeDigest = "sha256:" + strings.Repeat("01", 32)

const testTemplate = "small"

// startFake runs an agent on fakes.
func startFake(t *testing.T, d *fakeDriver, change ...func(*Config)) (*Agent, *fakeNetwork) {
	t.Helper()
	n := &fakeNetwork{taken: map[int]bool{}}
	cfg := Config{
		Kept: openKeeper(t), Dir: t.TempDir(), Drivers: []driver.Driver{d}, Network: n, Images: fakeImages{},
		Templates: []Template{{Name: testTemplate, CPU: 1, MemoryMB: 64, DiskMB: 64}}, Shells: 1,
	}
	for _, f := range change {
		f(&cfg)
	}
	a := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		d.mu.Lock()
		left := slices.Collect(maps.Values(d.alive))
		d.mu.Unlock()
		for _, m := range left {
			m.end()
		}
	})
	return a, n
}

// openKeeper gives a real store of snapshots, which packs nothing.
func openKeeper(t *testing.T) snapshot.Keeper {
	t.Helper()
	k, err := snapshot.Open(context.Background(), snapshot.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func specFor(id string) host.Spec {
	return host.Spec{ID: id, Template: testTemplate, Token: "token-" + id}
}
