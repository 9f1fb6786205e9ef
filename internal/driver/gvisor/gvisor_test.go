//go:build linux

package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot/filter"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
	"github.com/pandastack/pandastack/internal/image/imagetest"
)

// childEnv makes the test binary start one machine and wait to be killed.
const childEnv = "GVISOR_TEST_CHILD"

func TestMain(m *testing.M) {
	if IsReexec() {
		Main()
	}
	if spec := os.Getenv(childEnv); spec != "" {
		if err := childMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if made.dir != "" {
		os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// made holds the images of the tests, built once.
var made struct {
	once  sync.Once
	dir   string
	root  image.Image
	guest image.Image
	err   error
}

// images gives a small root and the guest program as EROFS images.
func images(t *testing.T) (root, guestImage image.Image) {
	t.Helper()
	imagetest.Need(t)
	made.once.Do(func() { made.err = makeImages() })
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.root, made.guest
}

func makeImages() (err error) {
	if made.dir, err = os.MkdirTemp("", "pandastack-gvisor-"); err != nil {
		return err
	}
	ctx := context.Background()
	tree := filepath.Join(made.dir, "tree")
	if err := imagetest.Root(tree); err != nil {
		return err
	}
	program := filepath.Join(made.dir, "guest")
	if err := imagetest.Guest(program); err != nil {
		return err
	}
	bytes, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	store := image.NewStore(filepath.Join(made.dir, "images"), slog.New(slog.DiscardHandler))
	if made.root, err = store.FromDir(ctx, tree, nil); err != nil {
		return err
	}
	made.guest, err = store.GuestImage(ctx, bytes)
	return err
}

// newEnv is a world for the suite: one state directory, real network slots.
func newEnv(t *testing.T) drivertest.Env {
	root, guestImage := images(t)
	state := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	newDriver := func(t *testing.T) driver.Driver {
		d, err := New(Config{StateDir: filepath.Join(state, "gvisor"), GuestImage: guestImage.Path, GuestDigest: guestImage.Digest, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	network := hostnet.New(hostnet.Config{Owner: api.NewID()[:8]}, log)
	if err := network.Setup(t.Context()); err != nil {
		t.Fatalf("network: %v", err)
	}
	t.Cleanup(func() {
		if err := network.Close(context.Background()); err != nil {
			t.Errorf("close network: %v", err)
		}
	})
	return drivertest.Env{
		New:       newDriver,
		Image:     driver.Image{Path: root.Path, Digest: root.Digest},
		Network:   func(t *testing.T) driver.Network { return takeSlot(t, network) },
		Leftovers: func() []string { return leftovers(newDriver(t).(*Driver)) },
		Dir: func(t *testing.T) string {
			dir, err := os.MkdirTemp(state, "t-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		},
		Small: func(t *testing.T) string {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
			return dir
		},
	}
}

func takeSlot(t *testing.T, m *hostnet.Manager) driver.Network {
	t.Helper()
	slot, err := m.Take(t.Context())
	if err != nil {
		t.Fatalf("take a network slot: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Release(context.Background(), slot); err != nil {
			t.Errorf("release slot: %v", err)
		}
	})
	return driver.Network{Namespace: slot.Namespace, Interface: slot.Interface, MAC: slot.MAC, Address: slot.Address, Gateway: slot.Gateway, MTU: slot.MTU}
}

// leftovers lists what exists of a driver on this host.
func leftovers(d *Driver) []string {
	var left []string
	for _, pid := range sentriesOf(d.cfg.StateDir) {
		left = append(left, fmt.Sprint("process ", pid))
	}
	for _, id := range cgroupsOf(d.tag) {
		left = append(left, "cgroup "+id)
	}
	for _, dir := range []string{runDir(d.cfg.StateDir), shellsDir(d.cfg.StateDir)} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			left = append(left, "file "+filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(left)
	return left
}

func TestDriver(t *testing.T) { drivertest.Run(t, newEnv(t)) }

// TestSeccompProgram looks the compiled filter up as a sentry does: by the name
// of its configuration.
func TestSeccompProgram(t *testing.T) {
	p, ok := seccompProgram()
	if !ok {
		t.Skip("SKIPPED: no program was generated for this architecture")
	}
	installSeccomp()
	if _, ok := filter.GetPrecompiled(p.Name); !ok {
		t.Fatal("the program is not in gVisor's table after installSeccomp")
	}
	if want := sentryOptions(t).ConfigKey(); p.Name != want {
		t.Errorf("the generated program is for %s\na sentry looks for    %s\nrun go generate", p.Name, want)
	}
}

// TestVersion keeps checkpoints of different builds apart.
func TestVersion(t *testing.T) {
	setVersion()
	if runscVersion != Version() || strings.Contains(Version(), "MISSING") {
		t.Errorf("gVisor's version is %q, ours %q", runscVersion, Version())
	}
}

// orphan starts a machine in another process, which is killed as soon as it has
// told the machine's handle.
func orphan(t *testing.T, d *Driver, c childSpec) driver.Handle {
	t.Helper()
	c.Config = Config{StateDir: d.cfg.StateDir, GuestImage: d.cfg.GuestImage, GuestDigest: d.cfg.GuestDigest}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), childEnv+"="+string(text))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var h driver.Handle
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &h) != nil {
		t.Fatalf("the child answers %q, %v", line, err)
	}
	child.Process.Kill()
	child.Wait()
	return h
}

// machineSpec describes a machine of the test's own.
func machineSpec(t *testing.T, env drivertest.Env) driver.Spec {
	t.Helper()
	dir := filepath.Join(env.Dir(t), "machine")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return driver.Spec{ID: "m", Dir: dir, Image: env.Image, Limits: drivertest.Limits, Network: env.Network(t), Hostname: "m"}
}

// TestAttachAfterKill starts a machine in another process, kills that process
// and attaches to the machine it left.
func TestAttachAfterKill(t *testing.T) {
	env := newEnv(t)
	d := env.New(t).(*Driver)
	spec := machineSpec(t, env)
	h := orphan(t, d, childSpec{Spec: spec})
	m, err := d.Attach(t.Context(), h)
	if err != nil {
		t.Fatalf("Attach after the first owner was killed: %v", err)
	}
	g := guest.NewClient(m.Dial, "")
	defer g.Close()
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("the machine does not answer: %v", err)
	}
	snap := filepath.Join(env.Dir(t), "snapshot")
	if err := m.Snapshot(t.Context(), snap); err != nil {
		t.Errorf("Snapshot: %v", err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if left := leftovers(d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// One whose memory the dead process was still feeding it is dead as well.
	spec = machineSpec(t, env)
	spec.Snapshot = snap
	h = orphan(t, d, childSpec{Spec: spec, Remote: true})
	if _, err := d.Attach(t.Context(), h); api.CodeOf(err) != api.CodeSandboxDied {
		t.Errorf("Attach to a machine without its memory: %v", err)
	}
	if left := leftovers(d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// One that reads a local snapshot needs nobody.
	pages := filepath.Join(snap, "pages.img")
	if err := os.Rename(pages+".away", pages); err != nil {
		t.Fatal(err)
	}
	spec = machineSpec(t, env)
	spec.Snapshot = snap
	h = orphan(t, d, childSpec{Spec: spec})
	m, err = d.Attach(t.Context(), h)
	if err != nil {
		t.Fatalf("Attach to a machine of a local snapshot: %v", err)
	}
	if err := m.Loaded(t.Context()); err != nil {
		t.Errorf("Loaded: %v", err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// TestUnparkByDeath parks a machine in another process, which is killed: the
// machine goes on.
func TestUnparkByDeath(t *testing.T) {
	env := newEnv(t)
	d := env.New(t).(*Driver)
	h := orphan(t, d, childSpec{Spec: machineSpec(t, env), Park: filepath.Join(env.Dir(t), "parked")})
	m, err := d.Attach(t.Context(), h)
	if err != nil {
		t.Fatalf("Attach: %v", err)
	}
	g := guest.NewClient(m.Dial, "")
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := g.Health(ctx); err != nil {
		t.Errorf("a parked machine does not go on when its process dies: %v", err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

type childSpec struct {
	Config Config
	Spec   driver.Spec
	Remote bool   // the memory comes from this process, and slowly
	Park   string // park the machine in this directory
}

func childMain(text string) error {
	var c childSpec
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	d, err := New(c.Config)
	if err != nil {
		return err
	}
	if c.Remote {
		if err := c.makeRemote(); err != nil {
			return err
		}
	}
	m, err := d.Start(context.Background(), c.Spec)
	if err != nil {
		return err
	}
	if c.Park != "" {
		if _, err := m.Park(context.Background(), c.Park); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(m.Handle()); err != nil {
		return err
	}
	for {
		time.Sleep(time.Hour) // until killed; nothing else may run here, which select would take for a deadlock
	}
}

// makeRemote serves the pages of the snapshot after the first few reads never.
func (c *childSpec) makeRemote() error {
	pages := filepath.Join(c.Spec.Snapshot, "pages.img")
	f, err := os.Open(pages)
	if err != nil {
		return err
	}
	c.Spec.Remote = map[string]io.ReaderAt{"pages.img": stuck{f}}
	return os.Rename(pages, pages+".away")
}

// stuck gives all but the last part of a file.
type stuck struct{ f *os.File }

// ReadAt implements io.ReaderAt.
func (s stuck) ReadAt(b []byte, off int64) (int, error) {
	info, err := s.f.Stat()
	if err != nil {
		return 0, err
	}
	if off+int64(len(b)) == info.Size() {
		select {}
	}
	return s.f.ReadAt(b, off)
}

// TestShares compares what a sandbox weighs beside others with its CPUs.
func TestShares(t *testing.T) {
	env := newEnv(t)
	d := env.New(t).(*Driver)
	spec := machineSpec(t, env)
	spec.Limits.CPU = 0.5
	m, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop(t.Context())
	cg, err := m.(*machine).cgroup()
	if err != nil {
		t.Fatal(err)
	}
	cpu := cg.MakePath("cpu")
	for dir, want := range map[string]uint64{cpu: 512, filepath.Dir(cpu): uint64(runtime.NumCPU()) * 1024} {
		name := "cpu.shares"
		if !exists(filepath.Join(dir, name)) {
			name, want = "cpu.weight", 1+(want-2)*9999/262142
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(got)) != strconv.FormatUint(want, 10) {
			t.Errorf("%s of %s is %q, want %d (%v)", name, filepath.Base(dir), got, want, err)
		}
	}
}
