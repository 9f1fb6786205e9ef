package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/image/imagetest"
)

// childConfig tells this test binary to be a server, so that one can be killed.
const childConfig = "PANDASTACK_TEST_SERVER"

// TestMain plays three parts: gVisor's own processes, a server that is to be
// killed, and the tests.
func TestMain(m *testing.M) {
	if gvisor.IsReexec() {
		gvisor.Main()
	}
	if v := os.Getenv(childConfig); v != "" {
		childMain(v)
	}
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	// What keeps a lock of certmagic fresh notices within 5 s that it is gone, and
	// its limit of requests to an authority is the process's.
	err := goleak.Find(goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*RingBufferRateLimiter).loop"))
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func childMain(v string) {
	var c Config
	err := json.Unmarshal([]byte(v), &c)
	if err == nil {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
		err = Run(context.Background(), c)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// shared is what all tests of the binary start from, made once: a root
// filesystem and a cache of images.
var shared struct {
	once sync.Once
	dir  string
	err  error
}

func needSandboxes(t *testing.T) {
	t.Helper()
	imagetest.Need(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "server-test-"); shared.err == nil {
			shared.err = errors.Join(imagetest.Root(filepath.Join(shared.dir, "root")), imagetest.Guest(filepath.Join(shared.dir, "guest")))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

// sandboxConfig is a server whose base template is the small root.
func sandboxConfig(t *testing.T) Config {
	t.Helper()
	needSandboxes(t)
	two := 2
	cfg := Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Shells: &two, Grace: 2 * time.Second,
		Images: map[string]string{baseTemplate: filepath.Join(shared.dir, "root")}, ImageCache: filepath.Join(shared.dir, "images"),
		GuestProgram: filepath.Join(shared.dir, "guest"),
	}
	t.Cleanup(func() { checkNothingLeft(t, cfg) })
	return cfg
}

// checkNothingLeft runs after the servers of a test. What a test that failed
// half-way left is taken away by another server on the same directory.
func checkNothingLeft(t *testing.T, cfg Config) {
	left := leftovers(cfg.DataDir)
	if len(left) == 0 {
		return
	}
	if !t.Failed() {
		t.Errorf("left behind: %s", strings.Join(left, "\n"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	addr, done := make(chan string, 1), make(chan error, 1)
	cfg.OnListen = func(a string) { addr <- a }
	go func() { done <- Run(ctx, cfg) }()
	select {
	case a := <-addr:
		r := &running{t: t, dir: cfg.DataDir, addr: a}
		r.readKey()
		r.deleteAll()
	case err := <-done:
		done <- err
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}

// leftovers lists what a server has on the machine outside of its directory.
func leftovers(dir string) []string {
	left, _ := filepath.Glob("/run/netns/*" + ownerOf(dir) + "*") // the pattern is valid
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range procs {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), dir) {
			left = append(left, path+": "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(mounts), dir) {
		left = append(left, "a mount of "+dir)
	}
	return left
}

// running is a server in this process, or in a child.
type running struct {
	t    *testing.T
	dir  string
	addr string
	key  string
	stop func() error
}

// start runs a server until stop or the end of the test, and deletes what
// sandboxes are left then.
func start(t *testing.T, cfg Config) *running {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	ctx, cancel := context.WithCancel(context.Background())
	addr, done := make(chan string, 1), make(chan error, 1)
	cfg.OnListen = func(a string) { addr <- a }
	go func() { done <- Run(ctx, cfg) }()
	r := &running{t: t, dir: cfg.DataDir}
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		r.deleteAll()
		if err := r.stop(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	select {
	case r.addr = <-addr:
	case err := <-done:
		done <- err
		t.Fatalf("the server did not start: %v", err)
	}
	r.readKey()
	return r
}

// with is the same server for a subtest.
func (r *running) with(t *testing.T) *running {
	c := *r
	c.t = t
	return &c
}

// readKey waits for the admin key, which is there soon after the address.
func (r *running) readKey() {
	r.t.Helper()
	for range 1000 {
		if key, _ := os.ReadFile(filepath.Join(r.dir, "admin.key")); len(key) > 0 {
			r.key = strings.TrimSpace(string(key))
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatal("no admin key")
}

// try sends a request. The body is JSON unless it is a reader.
func (r *running) try(ctx context.Context, method, path string, body any) (*http.Response, error) {
	rd, ok := body.(io.Reader)
	if body != nil && !ok {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		rd = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.addr+path, rd)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	if !ok && body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return transport.RoundTrip(req)
}

// transport keeps no connections, so that none is left at the end.
var transport = &http.Transport{DisableKeepAlives: true}

// do sends a request that must be answered with status, decodes the answer into
// out unless that is nil, and gives its bytes.
func (r *running) do(status int, method, path string, body, out any) string {
	r.t.Helper()
	resp, err := r.try(r.t.Context(), method, path, body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		r.t.Fatalf("%s %s: %d, want %d: %s (%v)", method, path, resp.StatusCode, status, data, err)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			r.t.Fatalf("%s %s: %v: %s", method, path, err, data)
		}
	}
	return string(data)
}

// waitReady waits until creates are fast.
func (r *running) waitReady() {
	r.t.Helper()
	for range 600 {
		resp, err := r.try(r.t.Context(), "GET", "/readyz", nil)
		if err != nil {
			r.t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.t.Error("the server does not become ready")
}

func (r *running) create(req any) api.Sandbox {
	r.t.Helper()
	var s api.Sandbox
	r.do(201, "POST", "/v1/sandboxes", req, &s)
	return s
}

// sh runs a shell line that must succeed and gives its output.
func (r *running) sh(id, line string) string {
	r.t.Helper()
	var res api.ExecResult
	r.do(200, "POST", "/v1/sandboxes/"+id+"/exec", map[string]any{"cmd": line}, &res)
	if res.ExitCode != 0 {
		r.t.Fatalf("%s: %+v", line, res)
	}
	return strings.TrimSpace(res.Stdout)
}

func (r *running) deleteAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := r.try(ctx, "GET", "/v1/sandboxes?limit=1000", nil)
	if err != nil {
		return // stopped
	}
	defer resp.Body.Close()
	var list api.SandboxList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		r.t.Error(err)
	}
	for _, s := range list.Sandboxes {
		if resp, err := r.try(ctx, "DELETE", "/v1/sandboxes/"+s.ID, nil); err != nil || resp.StatusCode != 204 {
			r.t.Errorf("delete %s: %v %v", s.ID, resp, err)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
