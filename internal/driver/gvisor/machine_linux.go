package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cgroup"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/gvisor/hold"
)

// handleVersion is what Attach understands.
const handleVersion = 1

// handle is the driver's part of a driver.Handle.
type handle struct {
	ID          string         `json:"id"` // of the sentry
	Dir         string         `json:"dir"`
	PID         int            `json:"pid"`
	Started     uint64         `json:"started"`
	Socket      string         `json:"socket"`
	Limits      driver.Limits  `json:"limits"`
	Network     driver.Network `json:"network"`
	Image       driver.Image   `json:"image"`
	Hostname    string         `json:"hostname"`
	CreatedUnix int64          `json:"created"`
}

// machine is a sentry with a guest.
type machine struct {
	d        *Driver
	s        *sentry
	network  driver.Network
	image    driver.Image
	hostname string
	created  time.Time
	boot     driver.Boot
	conns    conns
	load     *load // nil if the machine needed nothing more when it was made

	mu      sync.Mutex // one of pause, resume, snapshot or stop at a time
	stopped bool
}

func newMachine(d *Driver, s *sentry, spec driver.Spec) *machine {
	return &machine{d: d, s: s, network: spec.Network, image: spec.Image, hostname: spec.Hostname, created: time.Now()}
}

// Handle implements driver.Machine.
func (m *machine) Handle() driver.Handle {
	b, err := json.Marshal(handle{
		ID: m.s.id, Dir: m.s.dir, PID: m.s.pid, Started: m.s.started, Socket: m.s.socket, Limits: m.s.limits,
		Network: m.network, Image: m.image, Hostname: m.hostname, CreatedUnix: m.created.Unix(),
	})
	if err != nil {
		panic("gvisor: a handle of plain values does not marshal: " + err.Error())
	}
	return driver.Handle{Driver: Name, Version: handleVersion, Data: b}
}

func parseHandle(h driver.Handle) (handle, error) {
	var v handle
	if h.Driver != Name {
		return v, api.Errorf(api.CodeUnsupported, "the handle is of driver %q, this is %s", h.Driver, Name)
	}
	if h.Version != handleVersion {
		return v, api.Errorf(api.CodeUnsupported, "the handle has version %d; this build reads version %d", h.Version, handleVersion)
	}
	if err := json.Unmarshal(h.Data, &v); err != nil {
		return v, api.Wrap(api.CodeUnsupported, err, "the handle is damaged")
	}
	return v, nil
}

// Attach implements driver.Driver.
func (d *Driver) Attach(ctx context.Context, h driver.Handle) (driver.Machine, error) {
	if err := d.setup(); err != nil {
		return nil, api.Wrap(api.CodeHostSetup, err, "cannot prepare the gVisor state directory")
	}
	v, err := parseHandle(h)
	if err != nil {
		return nil, err
	}
	if !running(v.PID, v.Started) {
		return nil, api.Errorf(api.CodeSandboxDied, "the sandbox's runtime process has ended")
	}
	if _, err := os.Stat(v.Socket); err != nil {
		return nil, api.Wrap(api.CodeSandboxDied, err, "the sandbox's control socket is gone")
	}
	conf := *d.conf
	s := &sentry{id: v.ID, dir: v.Dir, pid: v.PID, started: v.Started, socket: v.Socket, conf: &conf, limits: v.Limits, upper: filepath.Join(v.Dir, upperFile)}
	m := &machine{d: d, s: s, network: v.Network, image: v.Image, hostname: v.Hostname, created: time.Unix(v.CreatedUnix, 0)}
	if err := m.settleLoading(ctx); err != nil {
		return nil, err
	}
	m.settleMemory()
	return m, ctx.Err()
}

// Boot implements driver.Machine.
func (m *machine) Boot() driver.Boot { return m.boot }

// Dial implements driver.Machine.
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, api.Errorf(api.CodeInvalidRequest, "port %d is not between 1 and 65535", port)
	}
	c, err := dialGuest(ctx, m.network, port)
	if err != nil {
		return nil, err
	}
	return m.conns.add(c.(*net.TCPConn)), nil
}

// awaitGuest returns when the guest program accepts connections.
func (m *machine) awaitGuest(ctx context.Context) error {
	for delay := time.Millisecond; ; delay = min(delay*2, 50*time.Millisecond) {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		c, err := m.Dial(attempt, api.InternalPort)
		cancel()
		if err == nil {
			return c.Close()
		}
		if !running(m.s.pid, m.s.started) {
			return errors.New("the runtime process ended while the guest was booting")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

// Pause implements driver.Machine. The guest's tasks stand still first (see package
// hold), then the sentry as well: it would go on to answer for the guest's network
// where another machine takes its place. Both last longer than this process.
func (m *machine) Pause(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil || m.s.halted() {
		return err
	}
	if err := m.s.equip(ctx, hold.Freeze(), nil); err != nil {
		return pauseError(ctx, err)
	}
	return m.s.halt(ctx)
}

// Resume implements driver.Machine.
func (m *machine) Resume(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return err
	}
	m.s.proceed()
	if err := m.s.equip(ctx, hold.Thaw(), nil); err != nil {
		return pauseError(ctx, err)
	}
	return nil
}

// whileAwake does something for which the sentry must run. The guest of a paused
// machine stands still meanwhile.
func (m *machine) whileAwake(ctx context.Context, do func() error) error {
	if !m.s.halted() {
		return do()
	}
	m.s.proceed()
	return errors.Join(do(), m.s.halt(context.WithoutCancel(ctx)))
}

func (m *machine) cgroup() (cgroup.Cgroup, error) { return openCgroup(m.d.tag, m.s.id) }

// alive refuses work on a machine that has ended.
func (m *machine) alive() error {
	if m.stopped || !running(m.s.pid, m.s.started) {
		return api.Errorf(api.CodeSandboxDied, "the sandbox has stopped")
	}
	return nil
}

// Usage implements driver.Machine. It reads the host's counters only.
func (m *machine) Usage(context.Context) (driver.Usage, error) {
	if !running(m.s.pid, m.s.started) {
		return driver.Usage{}, api.Errorf(api.CodeSandboxDied, "the sandbox has stopped")
	}
	cg, err := m.cgroup()
	if err != nil {
		return driver.Usage{}, err
	}
	u := driver.Usage{PID: m.s.pid, MemoryLimit: m.s.limits.MemoryBytes, DiskLimit: m.s.limits.DiskBytes, StartedAt: m.created}
	if ns, err := cg.CPUUsage(); err == nil {
		u.CPU = time.Duration(ns)
	}
	u.MemoryBytes = memoryInUse(cg)
	if n, ok := readCounter(filepath.Join(cg.MakePath("pids"), "pids.current")); ok {
		u.Tasks = int(n)
	}
	var st unix.Stat_t
	if unix.Stat(m.s.upper, &st) == nil {
		u.DiskBytes = st.Blocks * 512
	}
	return u, nil
}

// Wait implements driver.Machine.
func (m *machine) Wait(ctx context.Context) (driver.Exit, error) {
	status, err := m.s.wait(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	exit := driver.Exit{Status: status, Reason: "The sandbox's runtime ended."}
	if status >= 0 {
		exit.Reason = fmt.Sprintf("The sandbox's runtime ended with status %d.", status)
	}
	if cg, err := m.cgroup(); err == nil && oomKilled(cg) {
		exit.Reason = fmt.Sprintf("The sandbox used more memory than its limit of %d MiB.", m.s.limits.MemoryBytes>>20)
	} else if tail := tailOf(filepath.Join(m.s.dir, panicFile), 300); tail != "" {
		exit.Reason = "The sandbox's runtime failed: " + tail
	} else if lost := m.load.lost(); lost != nil {
		exit.Reason = fmt.Sprintf("The sandbox's memory could not be read from its snapshot: %v.", lost)
	}
	return exit, nil
}

// Stop implements driver.Machine.
func (m *machine) Stop(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopped {
		m.release(context.WithoutCancel(ctx))
	}
	return nil
}

// release ends the sentry and removes its cgroup and socket.
func (m *machine) release(ctx context.Context) {
	m.stopped = true
	m.load.stop()
	m.conns.cut()
	m.s.kill(ctx)
	removeCgroup(m.d.tag, m.s.id)
}
