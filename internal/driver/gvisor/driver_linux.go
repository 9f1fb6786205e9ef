package gvisor

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// Driver starts gVisor machines.
type Driver struct {
	cfg   Config
	conf  *config.Config
	tag   string // marks our cgroups among those of other servers
	shell shells
	setup func() error
}

// New makes a driver. It touches nothing until it is used.
func New(cfg Config) (*Driver, error) {
	if !filepath.IsAbs(cfg.StateDir) {
		return nil, fmt.Errorf("gvisor: state directory %q is not absolute", cfg.StateDir)
	}
	conf, err := newRunscConfig(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(cfg.StateDir))
	d := &Driver{cfg: cfg, conf: conf, tag: hex.EncodeToString(sum[:4])}
	d.setup = sync.OnceValue(d.makeDirs)
	d.shell.init(d)
	return d, nil
}

// Descriptors that nothing else in this process may get. A sentry moves its
// standard streams to 253..255 and fails if it inherited something there, as it
// does with its control socket. And a child whose table of descriptors has to
// grow waits for every CPU (8 ms for each start): one that is open at 256 makes
// the table large enough from the beginning.
const firstParked, lastParked = 253, 256

// makeDirs prepares the state directory and this process, once.
func (d *Driver) makeDirs() error {
	for _, dir := range []string{runDir(d.cfg.StateDir), shellsDir(d.cfg.StateDir), emptyDir(d.cfg.StateDir)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	return parkDescriptors()
}

var parkDescriptors = sync.OnceValue(func() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := firstParked; fd <= lastParked; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			continue // taken before this driver was used, and so parked as well if it is ours
		}
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("raise the limit of open files above %d: %w", lastParked, err)
		}
	}
	return nil
})

// Name implements driver.Driver.
func (d *Driver) Name() string { return Name }

// Capabilities of every machine of this driver.
var capabilities = driver.Capabilities{Snapshot: true, Disk: true, Pause: true, ResizeOnCreate: true}

// Probe implements driver.Driver.
func (d *Driver) Probe(context.Context) driver.Probe {
	p := driver.Probe{Version: Version() + "+" + shortDigest(d.cfg.GuestDigest), Capabilities: capabilities}
	switch reason := unusable(); {
	case reason != "":
		p.Reason = reason
	default:
		p.Usable = true
		p.Reason = "System calls are served by gVisor (systrap); hardware virtualisation is not needed."
	}
	return p
}

// unusable gives the reason why sentries cannot start here, or nothing.
func unusable() string {
	switch runtime.GOARCH {
	case "amd64", "arm64":
	default:
		return "gVisor runs on amd64 and arm64 only."
	}
	if dynamicallyLinked() {
		return "This binary is linked dynamically, and cannot run in the empty root of a sentry: build it with CGO_ENABLED=0 (make build)."
	}
	if os.Geteuid() != 0 {
		return "It needs root to make namespaces and cgroups."
	}
	for _, ns := range []string{"user", "net", "pid", "mnt", "ipc", "uts"} {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			return "The kernel has no " + ns + " namespaces."
		}
	}
	if b, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(b)) == "0" {
		return "User namespaces are switched off (sysctl user.max_user_namespaces is 0)."
	}
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		return "The kernel is older than 5.4: it has no pidfd_open."
	} else {
		unix.Close(fd)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		return "The kernel does not list a process's children (CONFIG_PROC_CHILDREN)."
	}
	if !hasCgroups() {
		return "The cgroup controllers cpu, memory and pids are not mounted under /sys/fs/cgroup."
	}
	return ""
}

// dynamicallyLinked reports whether this program needs a loader and libraries,
// which a sentry does not find when it executes the program again in its chroot.
var dynamicallyLinked = sync.OnceValue(func() bool {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true
		}
	}
	return false
})

// hasCgroups looks for the three controllers that enforce limits.
func hasCgroups() bool {
	if b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		have := " " + strings.TrimSpace(string(b)) + " "
		return strings.Contains(have, " cpu ") && strings.Contains(have, " memory ") && strings.Contains(have, " pids ")
	}
	for _, c := range []string{"cpu", "memory", "pids"} {
		if _, err := os.Stat("/sys/fs/cgroup/" + c); err != nil {
			return false
		}
	}
	return true
}

// withDefaults fills limits that the caller left open.
func withDefaults(l driver.Limits) driver.Limits {
	if l.CPU == 0 {
		l.CPU = 1
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = 1 << 30
	}
	if l.DiskBytes == 0 {
		l.DiskBytes = 10 << 30
	}
	if l.Tasks == 0 {
		// The sentry has some 20 threads and two tasks for each process
		// of the guest.
		l.Tasks = 4096
	}
	return l
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Machine, error) {
	if err := d.setup(); err != nil {
		return nil, api.Wrap(api.CodeHostSetup, err, "cannot prepare the gVisor state directory")
	}
	spec.Limits = withDefaults(spec.Limits)
	steps := stopwatch{last: time.Now()}
	var meta snapshotMeta
	if spec.Snapshot != "" {
		var err error
		if meta, err = d.checkSnapshot(spec); err != nil {
			return nil, err
		}
	}
	s, fromShell, err := d.sentryFor(ctx, spec)
	if err != nil {
		return nil, startError(ctx, spec, err)
	}
	steps.lap(map[bool]string{true: "shell", false: "sentry"}[fromShell])
	m := newMachine(d, s, spec)
	m.boot.Restored, m.boot.Shell = spec.Snapshot != "", fromShell
	if spec.Snapshot != "" {
		if m.load, err = s.restore(ctx, spec, meta); m.load != nil {
			m.load.watch(ctx, s)
		}
		steps.lap("restore")
	} else {
		if spec.Disk != "" {
			err = m.startFromDisk(ctx, spec)
		} else {
			err = m.startCold(ctx, spec)
		}
		steps.lap("boot")
	}
	if err != nil {
		err = bootError(s.dir, err)
		m.release(context.WithoutCancel(ctx))
		return nil, startError(ctx, spec, err)
	}
	m.boot.Steps = steps.steps
	return m, nil
}

// sentryFor takes a shell that fits, or starts a runtime process.
func (d *Driver) sentryFor(ctx context.Context, spec driver.Spec) (*sentry, bool, error) {
	if spec.Snapshot != "" {
		if s := d.shell.take(ctx, keyOf(spec)); s != nil {
			// A rename onto an empty directory replaces it.
			if err := unix.Rename(s.dir, spec.Dir); err != nil {
				d.discard(context.WithoutCancel(ctx), s)
				return nil, false, fmt.Errorf("move shell into place: %w", err)
			}
			s.moved(spec.Dir)
			return s, true, nil
		}
	}
	s, err := d.newSentry(ctx, api.NewID(), spec.Dir, spec)
	return s, false, err
}

// discard ends a sentry that has no machine and removes what it had.
func (d *Driver) discard(ctx context.Context, s *sentry) {
	s.kill(ctx)
	removeCgroup(d.tag, s.id)
	os.RemoveAll(s.dir)
}

// startError gives a failed start its code.
func startError(ctx context.Context, spec driver.Spec, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var coded *api.Error
	if errors.As(err, &coded) {
		return coded
	}
	if errors.Is(err, unix.ENOSPC) {
		return api.Wrap(api.CodeCapacity, err, "the host's disk is full")
	}
	if spec.Snapshot != "" {
		return api.Wrap(api.CodeBootFailed, err, "the sandbox could not be restored from its snapshot")
	}
	return api.Wrap(api.CodeBootFailed, err, "the sandbox did not boot")
}

// bootError adds what the sentry or the guest said before it failed.
func bootError(dir string, err error) error {
	for _, name := range []string{panicFile, consoleFile} {
		if tail := tailOf(filepath.Join(dir, name), 2048); tail != "" {
			err = fmt.Errorf("%w; %s: %s", err, name, tail)
		}
	}
	return err
}

func tailOf(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > n {
		f.Seek(-n, 2)
	}
	b := make([]byte, n)
	k, _ := f.Read(b)
	return strings.TrimSpace(strings.ToValidUTF8(string(b[:k]), "?"))
}

func shortDigest(d string) string {
	d = strings.TrimPrefix(d, "sha256:")
	if len(d) > 12 {
		return d[:12]
	}
	return d
}

// stopwatch times the steps of a start.
type stopwatch struct {
	last  time.Time
	steps []driver.Step
}

func (w *stopwatch) lap(name string) {
	now := time.Now()
	w.steps = append(w.steps, driver.Step{Name: name, Took: now.Sub(w.last)})
	w.last = now
}

// dialGuest connects to a port of the guest over the host's end of its wire.
func dialGuest(ctx context.Context, n driver.Network, port int) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp4", net.JoinHostPort(n.Address.Addr().String(), strconv.Itoa(port)))
}
