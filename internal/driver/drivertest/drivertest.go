// Package drivertest is the suite that every driver passes. It holds one check
// for each promise of the contract in package driver; a bug found in one driver
// becomes a check here, for all of them.
package drivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guest"
)

// Env is a driver under test and the world it needs.
type Env struct {
	// New makes a driver over the same state each time, as a restarted agent
	// would.
	New func(t *testing.T) driver.Driver
	// Image has a busybox-like userland: sh, dd, date, sleep, cat, kill, ps.
	Image driver.Image
	// Network makes a place on a network, removed with the test.
	Network func(t *testing.T) driver.Network
	// Leftovers names everything on this host that belongs to the driver's
	// state: processes, cgroups, sockets, mounts. It is empty when no machine
	// and no shell exists.
	Leftovers func() []string
	// Dir makes a directory on the filesystem of the driver's state.
	Dir func(t *testing.T) string
	// Small makes a directory on a filesystem of half a megabyte.
	Small func(t *testing.T) string
}

// Limits of the suite's machines unless a check needs others.
var Limits = driver.Limits{CPU: 1, MemoryBytes: 256 << 20, DiskBytes: 64 << 20, Tasks: 600}

// Run runs every check.
func Run(t *testing.T, env Env) {
	s := &suite{Env: env}
	s.d = env.New(t)
	t.Cleanup(func() {
		if err := s.d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left := env.Leftovers(); len(left) > 0 {
			t.Errorf("left behind at the end: %v", left)
		}
	})
	p := s.d.Probe(t.Context())
	if !p.Usable {
		t.Fatalf("the driver cannot be used here: %s", p.Reason)
	}
	s.caps = p.Capabilities
	t.Run("Probe", s.testProbe)
	t.Run("Cold", s.testCold)
	t.Run("Attach", s.testAttach)
	t.Run("Stop", s.testStop)
	t.Run("Wait", s.testWait)
	t.Run("Usage", s.testUsage)
	t.Run("Isolation", s.testIsolation)
	t.Run("HostDisk", s.testHostDisk)
	t.Run("Limits", s.testLimits)
	t.Run("FailedStart", s.testFailedStart)
	t.Run("Sweep", s.testSweep)
	if s.caps.Pause {
		t.Run("Pause", s.testPause)
	}
	if s.caps.Snapshot {
		t.Run("Snapshot", s.testSnapshot)
		t.Run("Restore", s.testRestore)
		t.Run("Hold", s.testHold)
		t.Run("Park", s.testPark)
		t.Run("Remote", s.testRemote)
		t.Run("Shells", s.testShells)
	}
	if s.caps.Disk {
		t.Run("Disk", s.testDisk)
	}
}

type suite struct {
	Env
	d    driver.Driver
	caps driver.Capabilities
}

// spec describes a machine with a directory and a network of its own.
func (s *suite) spec(t *testing.T) driver.Spec {
	t.Helper()
	id := api.NewID()
	dir := filepath.Join(s.Dir(t), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return driver.Spec{ID: id, Dir: dir, Image: s.Image, Limits: Limits, Network: s.Network(t), Hostname: "machine"}
}

// start starts a machine that ends with the test.
func (s *suite) start(t *testing.T, spec driver.Spec) *box {
	t.Helper()
	m, err := s.d.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	return s.box(t, m)
}

func (s *suite) box(t *testing.T, m driver.Machine) *box {
	b := &box{Machine: m, guest: guest.NewClient(m.Dial, "")}
	t.Cleanup(func() {
		b.guest.Close()
		if err := m.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return b
}

// snapshot takes one of a machine, in a directory that ends with the test.
func (s *suite) snapshot(t *testing.T, b *box) string {
	t.Helper()
	b.guest.Close()
	dir := filepath.Join(s.Dir(t), "snapshot-"+api.NewID())
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := b.Snapshot(t.Context(), dir); err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	return dir
}

// box is a machine with a client of its guest program.
type box struct {
	driver.Machine
	guest *guest.Client
}

// run executes a shell line as root and gives its output and exit status.
func (b *box) run(ctx context.Context, line string) (string, int, error) {
	p, err := b.guest.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", line}, User: "root", Cwd: "/"})
	if err != nil {
		return "", 0, err
	}
	defer p.Close()
	var out bytes.Buffer
	for {
		e, err := p.Recv()
		if err != nil {
			return out.String(), 0, err
		}
		out.Write(e.Stdout)
		out.Write(e.Stderr)
		if e.Exit != nil {
			return out.String(), e.Exit.Code, nil
		}
	}
}

// become tells the guest program who it is, as an agent does after a start.
func (b *box) become(t *testing.T, id string, how api.BootMode) {
	t.Helper()
	err := b.guest.Init(t.Context(), guest.Init{ID: id, Hostname: "host-" + id, Boot: string(how), Identity: true})
	if err != nil {
		t.Fatalf("Init: %v", err)
	}
}

// sh runs a line that must succeed and gives its output without the last newline.
func (b *box) sh(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, code, err := b.run(ctx, line)
	if err != nil || code != 0 {
		t.Fatalf("%q in the machine: exit %d, %v, output %q", line, code, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

// watch stops the machine when it has ended by itself, as an agent does.
func (b *box) watch(ctx context.Context) <-chan driver.Exit {
	exits := make(chan driver.Exit, 1)
	go func() {
		if exit, err := b.Wait(ctx); err == nil {
			b.Stop(ctx)
			exits <- exit
		}
	}()
	return exits
}

// background starts a shell line and leaves it running.
func (b *box) background(t *testing.T, line string) {
	t.Helper()
	p, err := b.guest.Start(t.Context(), guest.Command{Cmd: "/bin/sh", Args: []string{"-c", line}, User: "root", Cwd: "/"})
	if err != nil {
		t.Fatalf("start %q in the machine: %v", line, err)
	}
	p.Close()
}

// wantCode checks the code of an error.
func wantCode(t *testing.T, err error, codes ...api.Code) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one of %v", codes)
	} else if !slices.Contains(codes, api.CodeOf(err)) {
		t.Errorf("error %v has code %s, want one of %v", err, api.CodeOf(err), codes)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after 30 s: %s", what)
		}
	}
}

func (s *suite) testProbe(t *testing.T) {
	p := s.d.Probe(t.Context())
	if p.Reason == "" || p.Version == "" {
		t.Errorf("Probe = %+v, want a reason and a version", p)
	}
	if s.d.Name() == "" {
		t.Error("the driver has no name")
	}
}

func (s *suite) testCold(t *testing.T) {
	b := s.start(t, s.spec(t))
	if boot := b.Boot(); boot.Restored {
		t.Errorf("Boot = %+v after a cold start", boot)
	}
	if err := b.guest.Health(t.Context()); err != nil {
		t.Errorf("the guest does not answer after Start: %v", err)
	}
	if got := b.sh(t, "id -u; hostname"); got != "0\nmachine" {
		t.Errorf("id and hostname = %q", got)
	}
	b.sh(t, "echo hello > /file && mkdir -p /a/b && mv /file /a/b/ && rm -r /etc/hostname; true")
	if got := b.sh(t, "cat /a/b/file"); got != "hello" {
		t.Errorf("file read back = %q", got)
	}
	other := s.start(t, s.spec(t))
	if _, code, err := other.run(t.Context(), "test -e /a"); err != nil || code == 0 {
		t.Errorf("a write of one machine is seen by another of the same image (exit %d, %v)", code, err)
	}
}

func (s *suite) testAttach(t *testing.T) {
	b := s.start(t, s.spec(t))
	b.sh(t, "echo before > /mark")
	stored, err := json.Marshal(b.Handle())
	if err != nil {
		t.Fatal(err)
	}
	var h driver.Handle
	if err := json.Unmarshal(stored, &h); err != nil {
		t.Fatal(err)
	}
	again := s.New(t) // the driver of a restarted agent
	m, err := again.Attach(t.Context(), h)
	if err != nil {
		t.Fatalf("Attach: %v", err)
	}
	attached := s.box(t, m)
	if got := attached.sh(t, "cat /mark"); got != "before" {
		t.Errorf("attached to another machine: mark = %q", got)
	}
	if u, err := m.Usage(t.Context()); err != nil || u.PID == 0 {
		t.Errorf("Usage of an attached machine = %+v, %v", u, err)
	}
	wrong := h
	wrong.Version = 1 << 20
	_, err = again.Attach(t.Context(), wrong)
	wantCode(t, err, api.CodeUnsupported)
	wrong = h
	wrong.Driver = "none"
	_, err = again.Attach(t.Context(), wrong)
	wantCode(t, err, api.CodeUnsupported)

	if err := m.Stop(t.Context()); err != nil {
		t.Fatalf("Stop of an attached machine: %v", err)
	}
	_, err = again.Attach(t.Context(), h)
	wantCode(t, err, api.CodeSandboxDied)
}

func (s *suite) testStop(t *testing.T) {
	spec := s.spec(t)
	before := s.Leftovers()
	b := s.start(t, spec)
	b.background(t, "while :; do :; done")
	for range 2 {
		if err := b.Stop(t.Context()); err != nil {
			t.Fatalf("Stop: %v", err)
		}
	}
	if left := s.Leftovers(); !slices.Equal(left, before) {
		t.Errorf("left behind after Stop: %v, before %v", left, before)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if c, err := b.Dial(ctx, api.InternalPort); err == nil {
		c.Close()
		t.Error("Dial reaches a machine that was stopped")
	}
	if _, err := b.Usage(t.Context()); err == nil {
		t.Error("Usage of a stopped machine is no error")
	}
	if s.caps.Snapshot {
		wantCode(t, b.Snapshot(t.Context(), filepath.Join(s.Dir(t), "none")), api.CodeSandboxDied)
	}
}

func (s *suite) testWait(t *testing.T) {
	b := s.start(t, s.spec(t))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Wait(ctx); err != context.DeadlineExceeded {
		t.Errorf("Wait with a context that ends = %v", err)
	}
	attached, err := s.New(t).Attach(t.Context(), b.Handle())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 3)
	for _, m := range []driver.Machine{b, b, attached} {
		go func() {
			exit, err := m.Wait(t.Context())
			if err == nil && exit.Reason == "" {
				err = fmt.Errorf("exit %+v has no reason", exit)
			}
			done <- err
		}()
	}
	// The first process of a machine is the machine.
	b.background(t, "kill -KILL 1; kill -TERM 1")
	u, err := b.Usage(t.Context())
	if err == nil {
		if p, err := os.FindProcess(u.PID); err == nil {
			p.Kill()
		}
	}
	for range 3 {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Wait: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("Wait does not return after the machine has ended")
		}
	}
	if _, err := b.Wait(t.Context()); err != nil {
		t.Errorf("Wait after the end: %v", err)
	}
}

func (s *suite) testUsage(t *testing.T) {
	b := s.start(t, s.spec(t))
	first, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first.PID == 0 || first.MemoryBytes <= 0 || first.Tasks == 0 || first.StartedAt.IsZero() ||
		first.MemoryLimit != Limits.MemoryBytes || first.DiskLimit != Limits.DiskBytes {
		t.Errorf("Usage = %+v", first)
	}
	b.sh(t, "dd if=/dev/zero of=/big bs=1M count=20 2>/dev/null; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	then, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if then.CPU <= first.CPU {
		t.Errorf("CPU time stood still: %v, then %v", first.CPU, then.CPU)
	}
	if then.DiskBytes < first.DiskBytes+15<<20 {
		t.Errorf("20 MiB were written, and the disk grew from %d to %d bytes", first.DiskBytes, then.DiskBytes)
	}
}

func (s *suite) testPause(t *testing.T) {
	b := s.start(t, s.spec(t))
	b.background(t, "i=0; while :; do i=$((i+1)); echo $i > /count; sleep 0.01; done")
	eventually(t, "the counter counts", func() bool { return b.sh(t, "cat /count 2>/dev/null || true") != "" })
	for range 2 {
		if err := b.Pause(t.Context()); err != nil {
			t.Fatalf("Pause: %v", err)
		}
	}
	before, err := b.Usage(t.Context())
	if err != nil {
		t.Fatalf("Usage of a paused machine: %v", err)
	}
	time.Sleep(300 * time.Millisecond)
	after, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.CPU-before.CPU > 20*time.Millisecond {
		t.Errorf("a paused machine used %v of CPU", after.CPU-before.CPU)
	}
	m, err := s.New(t).Attach(t.Context(), b.Handle())
	if err != nil {
		t.Fatalf("Attach to a paused machine: %v", err)
	}
	for range 2 {
		if err := m.Resume(t.Context()); err != nil {
			t.Fatalf("Resume: %v", err)
		}
	}
	was := b.sh(t, "cat /count")
	eventually(t, "the counter goes on after Resume", func() bool { return b.sh(t, "cat /count") != was })

	if err := b.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Errorf("Stop of a paused machine: %v", err)
	}
}
