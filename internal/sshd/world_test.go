//go:build linux

package sshd

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// guestBinary is the guest program, built once.
var guestBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sshd-test-")
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
	} else if err := os.Chmod(dir, 0o755); err == nil {
		if code = m.Run(); code == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

const boxID = "k3v9x0q2m7c1b8n4t6zd"

// world is a control plane with one sandbox, which is the real guest program as a
// process of this machine.
type world struct {
	t      *testing.T
	addr   string // of the guest program
	client *guest.Client
	server *Server
	listen string
	key    ssh.Signer // which may
	stop   func()     // ends the server

	mu      sync.Mutex
	prints  map[string]bool
	refuse  error // of every use
	using   atomic.Int32
	touched atomic.Int32
}

func newSigner(t testing.TB) ssh.Signer {
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve starts a world and a server on it.
func serve(t *testing.T, change func(*Config)) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the guest program starts programs as other users, which needs root")
	}
	w := &world{t: t, prints: map[string]bool{}, key: newSigner(t)}
	w.prints[ssh.FingerprintSHA256(w.key.PublicKey())] = true
	w.startGuest()
	c := Config{Sandboxes: w, HostKey: newSigner(t), Log: slog.New(slog.DiscardHandler), GuestProgram: guestBinary}
	if change != nil {
		change(&c)
	}
	w.server = New(c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.listen = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the server does not stop")
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *world) startGuest() {
	cmd := exec.Command(guestBinary, "-no-init", "-allow-local-init", "-root", w.t.TempDir(), "-listen", "127.0.0.1:0")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(line, "addr=")
	w.addr, _, _ = strings.Cut(rest, " ")
	drained := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, r); close(drained) }()
	w.client = guest.NewClient(func(ctx context.Context, port int) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", w.addr)
	}, "")
	w.t.Cleanup(func() {
		w.client.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		<-drained
		_ = cmd.Wait()
	})
}

func (w *world) SSHIdentity(_ context.Context, id, print string) (auth.Identity, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != boxID || !w.prints[print] {
		return auth.Identity{}, api.Errorf(api.CodeForbidden, "no")
	}
	return auth.Identity{Org: "org", Name: "me"}, nil
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.prints)
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refuse
}

func (w *world) Get(context.Context, auth.Identity, string) (api.Sandbox, error) {
	return api.Sandbox{ID: boxID, GuestIP: "10.200.0.2"}, nil
}

func (w *world) Guest(context.Context, auth.Identity, string) (*guest.Client, error) {
	return w.client, w.failure()
}

func (w *world) StartProcess(ctx context.Context, _ auth.Identity, _ string, cmd guest.Command) (*guest.Process, *guest.Client, error) {
	if err := w.failure(); err != nil {
		return nil, nil, err
	}
	p, err := w.client.Start(context.WithoutCancel(ctx), cmd)
	return p, w.client, err
}

// Dial reaches, as from outside, only what does not listen on loopback alone;
// here that is what listens on 127.0.0.2, and the relay.
func (w *world) Dial(ctx context.Context, _ auth.Identity, _ string, port int) (net.Conn, error) {
	if err := w.failure(); err != nil {
		return nil, err
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	if err != nil {
		return nil, api.Wrap(api.CodeSandboxState, err, "nothing listens").With("port", port)
	}
	return nc, nil
}

func (w *world) Use(id string) func() {
	w.using.Add(1)
	return func() { w.using.Add(-1) }
}

func (w *world) Touch(string) { w.touched.Add(1) }

// login opens a connection with a key.
func (w *world) login(user string, key ssh.Signer) (*ssh.Client, error) {
	return ssh.Dial("tcp", w.listen, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, Timeout: time.Minute,
		HostKeyCallback: ssh.FixedHostKey(w.server.HostKey.PublicKey()),
	})
}

func (w *world) connect() *ssh.Client {
	w.t.Helper()
	c, err := w.login(boxID, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

func (w *world) session(c *ssh.Client) *ssh.Session {
	w.t.Helper()
	s, err := c.NewSession()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Close() })
	return s
}

// eventually waits for something to become true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in a minute: " + what)
		}
	}
}

// running counts the processes of this machine with a text in their command line.
func running(text string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	n := 0
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.Contains(strings.ReplaceAll(string(data), "\x00", " "), text) {
			n++
		}
	}
	return n
}
