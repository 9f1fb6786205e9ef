package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store/pgtest"
	"go.uber.org/goleak"
)

// guestBinary is the daemon of a sandbox, built once.
var guestBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "control-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	guestBinary = filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-o", guestBinary, "../../cmd/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	code := 1
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the guest program: %v\n%s", err, out)
	} else if code = pgtest.Run(m, os.Getenv("CI") != ""); code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// nativeHost is a host whose sandboxes are the real guest program as processes
// of this machine, without isolation. It outlives the services that use it, as
// an agent outlives a control plane.
type nativeHost struct {
	t  testing.TB
	mu sync.Mutex
	// beforeCreate and afterCreate run around a create, deleteErr fails
	// deletions; they are set before use.
	beforeCreate func(ctx context.Context, spec host.Spec) error
	afterCreate  func(ctx context.Context, spec host.Spec) error
	deleteErr    error
	networkErr   error // of SetNetwork
	disk         nativeDisk
	boxes        map[string]*nativeBox
	watchers     map[chan host.Change]bool
	waits        sync.WaitGroup
}

type nativeBox struct {
	host.Sandbox
	spec    host.Spec
	proc    *exec.Cmd
	addr    string
	done    chan struct{}
	stopped bool
}

func newHost(t testing.TB) *nativeHost {
	h := &nativeHost{t: t, boxes: map[string]*nativeBox{}, watchers: map[chan host.Change]bool{}}
	t.Cleanup(func() {
		h.mu.Lock()
		h.deleteErr = nil
		ids := make([]string, 0, len(h.boxes))
		for id := range h.boxes {
			ids = append(ids, id)
		}
		h.mu.Unlock()
		for _, id := range ids {
			if err := h.Delete(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
		h.waits.Wait()
	})
	return h
}

func (h *nativeHost) Info(context.Context) (host.Info, error) {
	return host.Info{ID: "native", Name: "native", Default: "none", Ready: true}, nil
}

func (h *nativeHost) Create(ctx context.Context, spec host.Spec) (host.Sandbox, error) {
	if h.beforeCreate != nil {
		if err := h.beforeCreate(ctx, spec); err != nil {
			return host.Sandbox{}, err
		}
	}
	if _, err := h.Get(ctx, spec.ID); err == nil {
		return host.Sandbox{}, api.Errorf(api.CodeSandboxExists, "%s exists", spec.ID)
	}
	if err := h.fromSnapshot(&spec); err != nil {
		return host.Sandbox{}, err
	}
	b, err := h.boot(ctx, spec, api.BootRestore)
	if err != nil {
		return host.Sandbox{}, err
	}
	if h.afterCreate != nil {
		if err := h.afterCreate(ctx, spec); err != nil {
			return host.Sandbox{}, err
		}
	}
	return b.Sandbox, nil
}

// boot starts a sandbox and keeps it.
func (h *nativeHost) boot(ctx context.Context, spec host.Spec, mode api.BootMode) (*nativeBox, error) {
	begun := time.Now()
	b, err := h.start(ctx, spec)
	if err != nil {
		return nil, err
	}
	b.BootMode, b.BootMS = mode, float64(time.Since(begun).Milliseconds())
	b.BootSteps = []api.Step{{Name: "start", MS: b.BootMS}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boxes[spec.ID] = b
	return b, nil
}

var listening = regexp.MustCompile(`addr=(\S+)`)

func (h *nativeHost) start(ctx context.Context, spec host.Spec) (*nativeBox, error) {
	cmd := exec.Command(guestBinary, "-listen", "127.0.0.1:0", "-no-init", "-allow-local-init", "-root", h.t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	logs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &nativeBox{proc: cmd, spec: spec, done: make(chan struct{}), Sandbox: host.Sandbox{
		ID: spec.ID, Template: spec.Template, Driver: "none", State: host.StateRunning,
		CPU: orElse(spec.CPU, 1), MemoryMB: orElse(spec.MemoryMB, 512), DiskMB: orElse(spec.DiskMB, 1024),
		GuestIP: "127.0.0.1", CreatedAt: time.Now(), Network: spec.Network,
	}}
	addr := make(chan string, 1)
	h.waits.Go(func() {
		scan := bufio.NewScanner(logs)
		for scan.Scan() {
			if m := listening.FindStringSubmatch(scan.Text()); m != nil {
				select {
				case addr <- m[1]:
				default:
				}
			}
		}
		_ = cmd.Wait()
		close(b.done)
		h.ended(b)
	})
	select {
	case b.addr = <-addr:
	case <-b.done:
		return nil, errors.New("the guest program ended at once")
	}
	client := guest.NewClient(func(ctx context.Context, _ int) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", b.addr)
	}, "")
	defer client.Close()
	if err := client.Init(ctx, guest.Init{AccessToken: spec.Token, EnvVars: spec.Env, ID: spec.ID, DefaultUser: "root"}); err != nil {
		h.stop(b)
		return nil, err
	}
	return b, nil
}

// ended tells the watchers of a sandbox that was not asked to end.
func (h *nativeHost) ended(b *nativeBox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.stopped || h.boxes[b.ID] != nil && h.boxes[b.ID] != b {
		return
	}
	b.State = host.StateFailed
	b.Error = api.Errorf(api.CodeSandboxDied, "the guest program ended")
	for w := range h.watchers {
		w <- host.Change{SandboxID: b.ID, State: host.StateFailed, Error: b.Error}
	}
}

func orElse[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func (h *nativeHost) stop(b *nativeBox) {
	h.mu.Lock()
	b.stopped = true
	h.mu.Unlock()
	_ = b.proc.Process.Signal(syscall.SIGCONT)
	_ = b.proc.Process.Signal(syscall.SIGTERM) // so that it ends what it started
	select {
	case <-b.done:
	case <-time.After(10 * time.Second):
		_ = b.proc.Process.Kill()
		<-b.done
	}
}

func (h *nativeHost) box(id string) (*nativeBox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.boxes[id]; b != nil {
		return b, nil
	}
	return nil, api.Errorf(api.CodeSandboxNotFound, "no sandbox %s here", id)
}

func (h *nativeHost) SetNetwork(_ context.Context, id string, n host.Network) error {
	b, err := h.box(id)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.networkErr != nil {
		return h.networkErr
	}
	b.Network = n
	return nil
}

func (h *nativeHost) NetworkLog(_ context.Context, id string, since int64, limit int) (api.ConnectionLog, error) {
	if _, err := h.box(id); err != nil {
		return api.ConnectionLog{}, err
	}
	all := []api.Connection{{ID: 1, Protocol: "tcp", Verdict: api.VerdictAllowed}, {ID: 2, Protocol: "dns", Verdict: api.VerdictDenied}}
	return api.ConnectionLog{Connections: all[min(int(since), 2):]}, nil
}

func (h *nativeHost) Get(_ context.Context, id string) (host.Sandbox, error) {
	b, err := h.box(id)
	if err != nil {
		return host.Sandbox{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return b.Sandbox, nil
}

func (h *nativeHost) List(context.Context) ([]host.Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []host.Sandbox
	for _, b := range h.boxes {
		out = append(out, b.Sandbox)
	}
	return out, nil
}

func (h *nativeHost) Delete(_ context.Context, id string) error {
	h.mu.Lock()
	b, err := h.boxes[id], h.deleteErr
	if err == nil {
		delete(h.boxes, id)
	}
	h.mu.Unlock()
	if err != nil || b == nil {
		return err
	}
	h.stop(b)
	return nil
}

func (h *nativeHost) Pause(_ context.Context, id string) error {
	return h.signal(id, syscall.SIGSTOP, host.StatePaused)
}

func (h *nativeHost) Resume(_ context.Context, id string) error {
	return h.signal(id, syscall.SIGCONT, host.StateRunning)
}

func (h *nativeHost) signal(id string, sig syscall.Signal, to host.State) error {
	b, err := h.box(id)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b.State = to
	return b.proc.Process.Signal(sig)
}

// die ends a sandbox without being asked to.
func (h *nativeHost) die(id string) {
	h.t.Helper()
	b, err := h.box(id)
	must(h.t, err)
	must(h.t, b.proc.Process.Kill())
	<-b.done
}

func (h *nativeHost) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	b, err := h.box(id)
	if err != nil {
		return nil, err
	}
	if st := h.stateOf(b); st != host.StateRunning {
		return nil, api.Errorf(api.CodeSandboxState, "sandbox %s is %s", id, st)
	}
	addr := b.addr
	if port != api.InternalPort {
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// Usages gives every running sandbox the same use, which grows by the second.
func (h *nativeHost) Usages(context.Context) (map[string]api.Metrics, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]api.Metrics{}
	for id, b := range h.boxes {
		if b.State == host.StateRunning || b.State == host.StatePaused {
			out[id] = api.Metrics{PID: b.proc.Process.Pid, HostRSSBytes: 64 << 20, CPUSeconds: time.Since(b.CreatedAt).Seconds() / 2}
		}
	}
	return out, nil
}

func (h *nativeHost) Usage(_ context.Context, id string) (api.Metrics, error) {
	b, err := h.box(id)
	if err != nil {
		return api.Metrics{}, err
	}
	if h.disk.onUsage != nil {
		h.disk.onUsage(id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.State == host.StateHibernated {
		return api.Metrics{}, api.Errorf(api.CodeSandboxState, "sandbox %s is hibernated", id)
	}
	return api.Metrics{PID: b.proc.Process.Pid, CPUSeconds: cpuSeconds(b.proc.Process.Pid), RxBytes: h.disk.traffic[id]}, nil
}

func (h *nativeHost) Templates(context.Context) ([]api.Template, error) {
	return []api.Template{{Name: "base", Status: "ready"}}, nil
}

func (h *nativeHost) Changes(ctx context.Context) (<-chan host.Change, error) {
	in, out := make(chan host.Change, 1000), make(chan host.Change)
	h.mu.Lock()
	h.watchers[in] = true
	h.mu.Unlock()
	h.waits.Go(func() {
		defer close(out)
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.watchers, in)
		}()
		for {
			select {
			case c := <-in:
				select {
				case out <- c:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return out, nil
}

func (h *nativeHost) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.boxes)
}

var _ host.Host = (*nativeHost)(nil)

var quiet = slog.New(slog.DiscardHandler)
