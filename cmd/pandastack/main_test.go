//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// The tests of this package use the program as its users do: it is started as a
// process of its own, with the base image and real sandboxes.

func TestMain(m *testing.M) {
	runSandboxRole()
	testscript.Main(testRunner{m}, map[string]func(){"pandastack": main})
}

// testRunner ends the server that the tests share after the last one, and the
// sandboxes that a failed test has left on it: they would outlive the server.
type testRunner struct{ *testing.M }

func (r testRunner) Run() int {
	code := r.M.Run()
	if shared.server != nil {
		if err := deleteAll(shared.server.client()); err != nil {
			fmt.Fprintln(os.Stderr, "delete what the tests have left:", err)
			code = 1
		}
		if err := shared.server.stop(syscall.SIGTERM); err != nil {
			fmt.Fprintln(os.Stderr, "stop the shared server:", err)
			code = 1
		}
		os.RemoveAll(shared.server.dataDir)
	}
	return code
}

// deleteAll deletes every sandbox of a server.
func deleteAll(c *client.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	defer c.Close()
	var failed []error
	for sb, err := range c.Sandboxes.List(ctx, client.ListOptions{}) {
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		if err := sb.Delete(ctx); err != nil && !client.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("%s: %w", sb.ID, err))
		}
	}
	return errors.Join(failed...)
}

// imageCache is where `make base` left the base image.
func imageCache() string {
	if dir := os.Getenv("IMAGE_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/pandastack/images"
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root")
	}
}

// program is this binary under the name of the product.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "pandastack"
	return cmd
}

// server is a running `pandastack server`.
type server struct {
	dataDir, addr, key string
	log                string // file
	program            func(args ...string) *exec.Cmd
	http               *http.Client // nil: the client's own
	cmd                *exec.Cmd
	ended              chan struct{}
	err                error // of its end, once ended is closed
}

// start starts a server on a data directory and waits until creates are fast.
func start(dataDir string, args ...string) (*server, error) {
	s := &server{dataDir: dataDir, program: program}
	return s, s.start(args...)
}

func (s *server) start(args ...string) error {
	s.log, s.ended = filepath.Join(s.dataDir, "server.log"), make(chan struct{})
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = s.program(append([]string{"server", "--data-dir", s.dataDir, "--listen", "127.0.0.1:0", "--image-cache", imageCache()}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	os.Remove(filepath.Join(s.dataDir, "server.json"))
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	if err := s.await(); err != nil {
		s.cmd.Process.Kill()
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("%w; the server says:\n%s", err, text)
	}
	return nil
}

// await waits for the server's address, its key, and readiness. The base image
// takes minutes if it has to be made.
func (s *server) await() error {
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %v", s.err)
		default:
		}
		var at struct{ Addr string }
		b, err := os.ReadFile(filepath.Join(s.dataDir, "server.json"))
		if err != nil || json.Unmarshal(b, &at) != nil {
			continue
		}
		key, err := os.ReadFile(filepath.Join(s.dataDir, "admin.key"))
		if err != nil {
			continue
		}
		s.addr, s.key = "http://"+at.Addr, strings.TrimSpace(string(key))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		h, err := s.client().Ready(ctx)
		cancel()
		if err == nil && h.Status == "ok" {
			return nil
		}
	}
	return fmt.Errorf("the server is not ready after 10 minutes")
}

func (s *server) client() *client.Client {
	c, err := client.New(client.Options{BaseURL: s.addr, APIKey: s.key, HTTPClient: s.http})
	if err != nil {
		panic(err)
	}
	return c
}

// stop ends the server process and waits for it.
func (s *server) stop(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-s.ended:
		if sig == syscall.SIGKILL {
			return nil
		}
		return s.err
	case <-time.After(time.Minute):
		s.cmd.Process.Kill()
		return fmt.Errorf("the server does not stop")
	}
}

var shared struct {
	once   sync.Once
	server *server
	err    error
}

// sharedServer is one for all tests that do not stop it.
func sharedServer(t *testing.T) *server {
	t.Helper()
	needRoot(t)
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("", "pandastack-e2e-")
		if err != nil {
			shared.err = err
			return
		}
		shared.server, shared.err = start(dir)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// own starts a server that belongs to one test.
func own(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	needRoot(t)
	return (&server{dataDir: dir, program: program}).owned(t, args...)
}

func (s *server) owned(t *testing.T, args ...string) *server {
	t.Helper()
	if err := s.start(args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-s.ended:
		default:
			s.stop(syscall.SIGTERM)
		}
		if t.Failed() {
			text, _ := os.ReadFile(s.log)
			t.Logf("the server's log:\n%s", text)
		}
	})
	return s
}

// create makes a sandbox that ends with the test.
func create(t *testing.T, s *server, in api.CreateSandbox) *client.Sandbox {
	t.Helper()
	c := s.client()
	sb, err := c.Sandboxes.Create(t.Context(), in)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		// A test that has stopped the server has deleted it before.
		err := sb.Delete(context.Background())
		if err != nil && !client.IsNotFound(err) && api.CodeOf(err) != api.CodeServerUnreachable {
			t.Errorf("delete: %v", err)
		}
		c.Close()
	})
	return sb
}

// sh runs a line in a sandbox that must succeed.
func sh(t *testing.T, sb *client.Sandbox, line string) string {
	t.Helper()
	res, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line(line), TimeoutSeconds: 60})
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("%q: exit %d, stdout %q, stderr %q", line, res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSuffix(res.Stdout, "\n")
}

func TestScripts(t *testing.T) {
	s := sharedServer(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv(api.EnvBaseURL, s.addr)
			env.Setenv(api.EnvAPIKey, s.key)
			env.Setenv("RUN_IMAGE_CACHE", imageCache())
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "server", "gvisor":
				return true, nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// TestClientExamples runs the Go SDK's examples against the server.
func TestClientExamples(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	cmd := exec.Command("go", "test", "-count=1", "-run", "Example", "-v", "./client")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), api.EnvBaseURL+"="+s.addr, api.EnvAPIKey+"="+s.key)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: Example") {
		t.Errorf("%v\n%s", err, out)
	}
}
