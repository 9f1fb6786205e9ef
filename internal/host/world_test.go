package host_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback is a host whose only sandbox is this process: its ports are real
// listeners. Ids that it is not told about do not exist.
type loopback struct {
	host.Host // what is not here is not asked for

	mu      sync.Mutex
	specs   map[string]host.Spec
	fail    error         // what Info answers
	block   chan struct{} // when set, Create waits for it or its context
	began   chan struct{} // a Create waits
	ended   chan error    // how a Create that waited ended
	changes chan host.Change

	snapshots map[string]host.Snapshot
	asked     []string                                     // calls about snapshots, with their arguments
	export    func(ctx context.Context) io.ReadCloser      // when set, what Export streams
	importing func(ctx context.Context, r io.Reader) error // when set, what Import does with the file
}

func newLoopback() *loopback {
	return &loopback{specs: map[string]host.Spec{}, snapshots: map[string]host.Snapshot{}, began: make(chan struct{}, 8), ended: make(chan error, 8), changes: make(chan host.Change, 8)}
}

func (l *loopback) Info(context.Context) (host.Info, error) {
	return host.Info{ID: "lo", Name: "loopback", CPUs: 2, Drivers: []host.DriverInfo{{Name: "none", Reason: "for tests"}}}, l.fail
}

func (l *loopback) Create(ctx context.Context, spec host.Spec) (host.Sandbox, error) {
	if l.block != nil {
		l.began <- struct{}{}
		select {
		case <-l.block:
		case <-ctx.Done():
			l.ended <- ctx.Err()
			return host.Sandbox{}, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.specs[spec.ID]; ok {
		return host.Sandbox{}, api.Errorf(api.CodeSandboxExists, "%s exists", spec.ID).With("id", spec.ID)
	}
	l.specs[spec.ID] = spec
	return l.sandbox(spec), nil
}

func (l *loopback) sandbox(spec host.Spec) host.Sandbox {
	return host.Sandbox{ID: spec.ID, Template: spec.Template, State: host.StateRunning, GuestIP: "127.0.0.1",
		CreatedAt: time.Unix(1e9, 42).UTC(), BootSteps: []api.Step{{Name: "restore", MS: 1.5}}}
}

func (l *loopback) Get(_ context.Context, id string) (host.Sandbox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	spec, ok := l.specs[id]
	if !ok {
		return host.Sandbox{}, api.Errorf(api.CodeSandboxNotFound, "no sandbox %q", id)
	}
	return l.sandbox(spec), nil
}

func (l *loopback) List(context.Context) ([]host.Sandbox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []host.Sandbox
	for _, s := range l.specs {
		out = append(out, l.sandbox(s))
	}
	return out, nil
}

func (l *loopback) Delete(_ context.Context, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.specs, id)
	return nil
}

func (l *loopback) Pause(ctx context.Context, id string) error {
	_, err := l.Get(ctx, id)
	return err
}

func (l *loopback) Resume(context.Context, string) error { panic("a fault of the host") }

func (l *loopback) Usage(context.Context, string) (api.Metrics, error) {
	return api.Metrics{PID: 7, MemoryLimit: 1 << 40}, nil
}

func (l *loopback) Usages(context.Context) (map[string]api.Metrics, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]api.Metrics{}
	for id := range l.specs {
		out[id] = api.Metrics{PID: 7, CPUSeconds: 1.5}
	}
	return out, nil
}

func (l *loopback) Templates(context.Context) ([]api.Template, error) {
	return []api.Template{{Name: "base", Status: "ready"}}, nil
}

func (l *loopback) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if _, err := l.Get(ctx, id); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, api.Wrap(api.CodeSandboxState, err, "nothing listens on port %d", port)
	}
	return conn, nil
}

func (l *loopback) Changes(ctx context.Context) (<-chan host.Change, error) {
	out := make(chan host.Change)
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case c, ok := <-l.changes:
				if !ok {
					return
				}
				select {
				case out <- c:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// wire is a host behind its handler on a port of this machine.
type wire struct {
	addr   string
	dir    string
	server *http.Server
	stop   context.CancelFunc // of everything the server does
}

// serve starts the handler with mutual TLS.
func serve(t *testing.T, h host.Host) *wire {
	t.Helper()
	dir := t.TempDir()
	ca, err := host.OpenAuthority(filepath.Join(dir, "ca"))
	must(t, err)
	must(t, ca.IssueHost(files(dir, "host"), "host-1", "127.0.0.1"))
	must(t, ca.IssueControl(files(dir, "control"), "control"))
	config, err := host.ServerTLS(files(dir, "host"))
	must(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	must(t, err)
	return start(t, h, listener, dir)
}

func start(t *testing.T, h host.Host, listener net.Listener, dir string) *wire {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &wire{addr: listener.Addr().String(), dir: dir, stop: stop}
	var open sync.WaitGroup
	handler := host.NewHandler(h, slog.New(slog.DiscardHandler))
	w.server = &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			open.Add(1)
			defer open.Done()
			handler.ServeHTTP(rw, r)
		}),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(listener) }()
	t.Cleanup(func() {
		stop()
		w.server.Close()
		<-served
		open.Wait()
	})
	return w
}

func (w *wire) client(t *testing.T) *host.Client {
	t.Helper()
	config, err := host.ClientTLS(files(w.dir, "control"), "host-1")
	must(t, err)
	return client(t, w.addr, config)
}

func client(t *testing.T, addr string, config *tls.Config) *host.Client {
	t.Helper()
	c := host.NewClient(addr, config)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func files(dir, name string) host.Files {
	return host.Files{
		CA:   filepath.Join(dir, name+"-ca.crt"),
		Cert: filepath.Join(dir, name+".crt"),
		Key:  filepath.Join(dir, name+".key"),
	}
}

// listen runs f for every connection to a port.
func listen(t *testing.T, f func(c *net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("%v, want %s", err, want)
	}
	return e
}

func echo(c *net.TCPConn) {
	if _, err := io.Copy(c, c); err == nil {
		_, _ = fmt.Fprint(c, "bye")
	}
}
