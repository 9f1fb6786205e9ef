package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/edge"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
	"github.com/pandastack/pandastack/internal/image/imagetest"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// shared is what all tests of the binary start from: images, made once.
var shared struct {
	once sync.Once
	dir  string
	err  error
}

// sharedDir gives a directory with an image store in which a small root and
// the guest program are tagged.
func sharedDir(t *testing.T) string {
	t.Helper()
	imagetest.Need(t)
	shared.once.Do(func() { shared.dir, shared.err = makeShared() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.dir
}

func makeShared() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "agent-test-"); err != nil {
		return "", err
	}
	ctx := context.Background()
	store := image.NewStore(filepath.Join(dir, "images"), slog.New(slog.DiscardHandler))
	root := filepath.Join(dir, "root")
	if err := imagetest.Root(root); err != nil {
		return dir, err
	}
	img, err := store.FromDir(ctx, root, nil)
	if err != nil {
		return dir, fmt.Errorf("make the test image: %w", err)
	}
	if err := store.Tag(testTemplate, img.Digest); err != nil {
		return dir, err
	}
	return dir, makeGuestImage(ctx, store, dir)
}

// setting is what a world and its killed twin have in common, as plain values.
type setting struct {
	Dir    string // of one server
	Shared string
	Owner  string
	Shells int
	Ahead  int
	Kill   string // point at which a child kills itself
	Job    string // of a child: what it does to its sandbox; default a delete
	ID     string // of the child's sandbox
	Snap   string // of the child's snapshot
}

func newSetting(t *testing.T) setting {
	t.Helper()
	s := setting{Dir: t.TempDir(), Shared: sharedDir(t), Owner: api.NewID()[:8], Ahead: 2}
	t.Cleanup(func() {
		if t.Failed() {
			s.sweep(t)
		}
	})
	return s
}

// sweep removes what a test that failed has left on the machine.
func (s setting) sweep(t *testing.T) {
	cfg, network, err := s.parts(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Errorf("sweep: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = errors.Join(
		cfg.Drivers[0].Sweep(ctx, nil), network.Setup(ctx), network.Sweep(ctx, nil), network.Close(ctx),
	)
	if err != nil {
		t.Errorf("sweep: %v", err)
	}
}

// parts makes the real things of an agent, and its configuration.
func (s setting) parts(log *slog.Logger) (Config, *edge.Edge, error) {
	store := image.NewStore(filepath.Join(s.Shared, "images"), log)
	g, err := store.Resolve(guestTag)
	if err != nil {
		return Config{}, nil, err
	}
	d, err := gvisor.New(gvisor.Config{
		StateDir: filepath.Join(s.Dir, "gvisor"), GuestImage: g.Path, GuestDigest: g.Digest, Log: log,
	})
	if err != nil {
		return Config{}, nil, err
	}
	keeper, err := snapshot.Open(context.Background(), snapshot.Config{Dir: filepath.Join(s.Dir, "kept"), Log: log})
	if err != nil {
		return Config{}, nil, err
	}
	network := edge.New(edge.Config{Slots: hostnet.Config{Owner: s.Owner, Ahead: s.Ahead}, Logs: filepath.Join(s.Dir, "network"), Log: log})
	return Config{
		Dir:       filepath.Join(s.Dir, "agent"),
		Drivers:   []driver.Driver{d},
		Network:   network,
		Images:    store,
		Kept:      keeper,
		Templates: []Template{{Name: testTemplate, CPU: 1, MemoryMB: 256, DiskMB: 256}},
		Shells:    s.Shells,
		Log:       log,
	}, network, nil
}

// world is a living agent.
type world struct {
	*Agent
	t       *testing.T
	setting setting
	stop    func()
}

// start begins an agent and stops it at the end of the test. Sandboxes that are
// left then are deleted first.
func start(t *testing.T, s setting, change ...func(*Config)) *world {
	t.Helper()
	cfg, _, err := s.parts(slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	a := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	w := &world{Agent: a, t: t, setting: s}
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	t.Cleanup(func() {
		defer w.stop()
		w.deleteAll()
	})
	<-a.Started()
	return w
}

func (w *world) deleteAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := w.List(ctx)
	if err != nil {
		return // stopped
	}
	for _, s := range list {
		if err := w.Delete(ctx, s.ID); err != nil {
			w.t.Errorf("delete %s: %v", s.ID, err)
		}
	}
}

// testWriter sends an agent's log to the test's.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// create makes a sandbox that must come up.
func (w *world) create(change ...func(*host.Spec)) host.Sandbox {
	w.t.Helper()
	spec := specFor(api.NewID())
	for _, f := range change {
		f(&spec)
	}
	s, err := w.Create(w.t.Context(), spec)
	if err != nil {
		w.t.Fatalf("create: %v", err)
	}
	return s
}

// sh runs a shell line as root in a sandbox and gives its output.
func (w *world) sh(id, line string) string {
	w.t.Helper()
	out, err := shell(w.t.Context(), w.Agent, id, line)
	if err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
	return out
}

func shell(ctx context.Context, h host.Host, id, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := guest.NewClient(func(ctx context.Context, port int) (net.Conn, error) { return h.Dial(ctx, id, port) }, "token-"+id)
	defer client.Close()
	p, err := client.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", line}, User: "root"})
	if err != nil {
		return "", err
	}
	defer p.Close()
	var out strings.Builder
	for {
		e, err := p.Recv()
		if err == io.EOF {
			return strings.TrimSpace(out.String()), nil
		}
		if err != nil {
			return out.String(), err
		}
		out.Write(e.Stdout)
		out.Write(e.Stderr)
	}
}

// leftovers lists what a server of this setting has on the machine, outside
// its directory: processes, namespaces, links, mounts and cgroups.
func (s setting) leftovers(t *testing.T) []string {
	t.Helper()
	var out []string
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range procs {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), s.Dir) {
			out = append(out, "process "+path+" "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	names, _ := filepath.Glob("/run/netns/*" + s.Owner + "*")
	out = append(out, names...)
	aliases, _ := filepath.Glob("/sys/class/net/*/ifalias")
	for _, path := range aliases {
		if alias, err := os.ReadFile(path); err == nil && strings.Contains(string(alias), s.Owner) {
			out = append(out, "link "+path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, s.Dir) || strings.Contains(line, s.Owner) {
			out = append(out, "mount "+line)
		}
	}
	return append(out, s.cgroups()...)
}

// sandboxDirs lists what the agent keeps on disk for sandboxes and bakes.
func (s setting) sandboxDirs() []string {
	var out []string
	for _, pattern := range []string{"agent/sandboxes/*", "agent/bake/*", "agent/forks/*", "kept/staging/*", "kept/raw/*", "agent/snapshots/.*", "gvisor/shells/*", "gvisor/run/*"} {
		names, _ := filepath.Glob(filepath.Join(s.Dir, pattern))
		out = append(out, names...)
	}
	return out
}

// cgroups lists the cgroups of this setting's sandboxes. Their names carry a
// hash of the driver's state directory; a test checks that they are found.
func (s setting) cgroups() []string {
	sum := sha256.Sum256([]byte(filepath.Join(s.Dir, "gvisor")))
	tag := hex.EncodeToString(sum[:4])
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup/pandastack/", "/sys/fs/cgroup/*/pandastack/"} {
		names, _ := filepath.Glob(pattern + tag + "-*")
		out = append(out, names...)
	}
	return out
}

const guestTag = "guest"

// makeGuestImage builds the guest program from source and stores its image.
func makeGuestImage(ctx context.Context, store *image.Store, dir string) error {
	program := filepath.Join(dir, "guest")
	if err := imagetest.Guest(program); err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	img, err := store.GuestImage(ctx, data)
	if err != nil {
		return fmt.Errorf("make the guest image: %w", err)
	}
	return store.Tag(guestTag, img.Digest)
}
