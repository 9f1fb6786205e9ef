//go:build linux

package sshd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
)

// Commands have their own output, input, status and signal.
func TestExec(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := w.connect()
	s := w.session(c)
	var out, errs bytes.Buffer
	s.Stdout, s.Stderr, s.Stdin = &out, &errs, strings.NewReader("in\n")
	for name, value := range map[string]string{"LC_ALL": "C", "LD_PRELOAD": "/x", "SECRET": "x"} {
		if err := s.Setenv(name, value); (err == nil) != (name == "LC_ALL") {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := s.Run("cat; echo err >&2; echo $LC_ALL$SECRET$PWD; exit 7")
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 7 || exit.Signal() != "" {
		t.Errorf("%v", err)
	}
	if out.String() != "in\nC/root\n" || errs.String() != "err\n" {
		t.Errorf("%q, %q", out.String(), errs.String())
	}
	if err := w.session(c).Run("kill -TERM $$"); !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Errorf("%v", err)
	}
	s = w.session(c)
	mark := "sleep 9" + strconv.Itoa(os.Getpid())
	if err := s.Start("exec " + mark); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return running("exec "+mark) == 0 && running(mark) == 1 })
	if err := s.Signal(ssh.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); !errors.As(err, &exit) || exit.Signal() != "INT" {
		t.Errorf("%v", err)
	}
	eventually(t, "nothing is in use", func() bool { return w.using.Load() == 0 })
}

// Much output comes whole, through a window that a slow reader closes.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	s := w.session(w.connect())
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("head -c 33554432 /dev/zero"); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, out); n != 32<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

// A terminal has a size, which changes, and a login shell.
func TestTerminal(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	s := w.session(w.connect())
	if err := s.RequestPty("vt100", 33, 77, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	in, _ := s.StdinPipe()
	out := &buffer{}
	s.Stdout = out
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	say := func(line, want string) {
		t.Helper()
		io.WriteString(in, line+"\n")
		eventually(t, want, func() bool { return strings.Contains(out.String(), want) })
	}
	say("stty size; echo $TERM", "33 77\r\nvt100")
	if err := s.WindowChange(50, 120); err != nil {
		t.Fatal(err)
	}
	say("for i in 1 2 3 4 5 6 7 8 9; do [ \"$(stty size)\" = '50 120' ] && break; sleep 1; done; stty size", "50 120")
	io.WriteString(in, "exit 3\n")
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 3 {
		t.Errorf("%v", err)
	}
}

// buffer is written to and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Whoever may not is told nothing, and the same whatever is wrong.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	stranger := newSigner(t)
	var texts []string
	for _, try := range []struct {
		user string
		key  ssh.Signer
	}{{boxID, stranger}, {"k3v9x0q2m7c1b8n4t6zz", w.key}, {"../etc", w.key}, {"", w.key}, {strings.Repeat("x", 60000), stranger}} {
		_, err := w.login(try.user, try.key)
		if err == nil {
			t.Fatalf("%.30q was let in", try.user)
		}
		texts = append(texts, err.Error())
	}
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("%q and %q", text, texts[0])
		}
	}
	_, err := ssh.Dial("tcp", w.listen, &ssh.ClientConfig{User: boxID, Auth: []ssh.AuthMethod{ssh.Password("x")}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err == nil {
		t.Error("a password was accepted")
	}
}

// Nothing but what is wanted is forwarded.
func TestNotForwarded(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := w.connect()
	s := w.session(c)
	for _, kind := range []string{"auth-agent-req@openssh.com", "x11-req"} {
		if ok, err := s.SendRequest(kind, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v", kind, ok, err)
		}
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("another subsystem")
	}
	for addr, want := range map[string]ssh.RejectionReason{
		"example.com:80": ssh.Prohibited, "10.200.0.3:80": ssh.Prohibited, "169.254.169.254:80": ssh.Prohibited,
		"localhost:49983": ssh.Prohibited, "localhost:1": ssh.ConnectionFailed,
	} {
		var open *ssh.OpenChannelError
		if _, err := c.Dial("tcp", addr); !errors.As(err, &open) || open.Reason != want {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, kind := range []string{"tun@openssh.com", "direct-streamlocal@openssh.com", "x11", "session2"} {
		if _, _, err := c.OpenChannel(kind, nil); err == nil {
			t.Error(kind)
		}
	}
}

// A port that only the sandbox's loopback has is reached as well.
func TestForward(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := w.connect()
	for _, at := range []string{"127.0.0.1:0", "127.0.0.2:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go echo(l)
		port := l.Addr().(*net.TCPAddr).Port
		for range 3 {
			nc, err := c.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
			if err != nil {
				t.Fatal(at, err)
			}
			roundTrip(t, nc)
		}
	}
	eventually(t, "nothing is in use", func() bool { return w.using.Load() == 0 })
}

// echo sends back what it gets, and the end after it.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

// roundTrip sends a megabyte to an echo and reads it back.
func roundTrip(t *testing.T, nc net.Conn) {
	t.Helper()
	defer nc.Close()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = nc.Write(want)
		_ = nc.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(nc)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(want), err)
	}
}

// A service that does not read what a client left behind keeps nothing in use.
func TestForwardNotRead(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := w.connect()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // which ends what nobody has accepted
	nc, err := c.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			n, err := nc.Write(make([]byte, 32<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	last := int64(-1)
	eventually(t, "every buffer is full", func() bool {
		was := last
		last = sent.Load()
		time.Sleep(time.Second)
		return last > 0 && last == was
	})
	if n := w.using.Load(); n != 1 {
		t.Errorf("%d uses, not 1", n)
	}
	nc.Close()
	eventually(t, "nothing is in use", func() bool { return w.using.Load() == 0 })
	writing.Wait()
}

// A relay that died is replaced, and nothing is kept of it.
func TestRelayReplaced(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := &conn{s: w.server, id: boxID, starting: make(chan struct{}, 1)}
	first, err := c.useRelay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.useRelay(t.Context()); err != nil || again != first {
		t.Errorf("a relay that lives was replaced: %v", err)
	}
	if err := w.client.KillTree(t.Context(), first.proc.PID()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.gone:
	case <-time.After(time.Minute):
		t.Fatal("nobody sees that the relay died")
	}
	second, err := c.useRelay(t.Context())
	if err != nil || second == first {
		t.Fatalf("the relay was not replaced: %v", err)
	}
	if err := first.hold.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the hold of the first is still there: %v", err)
	}
	if err := second.hold.SetDeadline(time.Time{}); err != nil {
		t.Error(err)
	}
	c.endRelay(t.Context())
	c.relays.Wait()
}

// Programs in the sandbox reach the client through a port of theirs.
func TestReverse(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := w.connect()
	l, err := c.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go echo(l)
	addr := l.Addr().String()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			roundTrip(t, nc)
		})
	}
	all.Wait()
	if _, err := c.Listen("tcp", addr); err == nil {
		t.Error("a port twice")
	}
	if _, err := c.Listen("tcp", "127.0.0.1:49983"); err == nil {
		t.Error("the daemon's port")
	}
	l.Close()
	eventually(t, "the port is free", func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	again, err := c.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	go echo(again)
	c.Close()
	eventually(t, "the port goes with the connection", func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	eventually(t, "nothing is in use", func() bool { return w.using.Load() == 0 })
}

// A client that vanishes leaves nothing, nor does one whose key is removed, nor the
// end of the server.
func TestGone(t *testing.T) {
	t.Parallel()
	for i, end := range []func(w *world, c *ssh.Client){
		func(_ *world, c *ssh.Client) { c.Close() },
		func(w *world, _ *ssh.Client) { w.forget() },
		func(w *world, _ *ssh.Client) { w.stop() },
	} {
		w := serve(t, func(c *Config) { c.KeepAlive = 200 * time.Millisecond })
		c := w.connect()
		mark := "sleep 7" + strconv.Itoa(os.Getpid()) + strconv.Itoa(i)
		for n, pty := range []bool{true, false, false} {
			s := w.session(c)
			if pty {
				if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
					t.Fatal(err)
				}
			}
			line := mark + " & " + mark + "; true"
			if n == 2 {
				line = "trap '' HUP; " + line
			}
			if err := s.Start(line); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "they run", func() bool { return running(mark) >= 6 })
		end(w, c)
		eventually(t, "they are gone", func() bool { return running(mark) == 0 })
		eventually(t, "nothing is in use", func() bool { return w.using.Load() == 0 })
	}
}

// A client that answers nothing more is cut off.
func TestLost(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *Config) { c.KeepAlive, c.LostAfter = 100*time.Millisecond, time.Second })
	raw, err := net.Dial("tcp", w.listen)
	if err != nil {
		t.Fatal(err)
	}
	deaf := &mute{Conn: raw, closed: make(chan struct{})}
	sc, chans, reqs, err := ssh.NewClientConn(deaf, w.listen, &ssh.ClientConfig{
		User: boxID, Auth: []ssh.AuthMethod{ssh.PublicKeys(w.key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(sc, chans, reqs)
	defer c.Close()
	mark := "sleep 8" + strconv.Itoa(os.Getpid())
	if err := w.session(c).Start(mark); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return running(mark) > 0 })
	deaf.deaf.Store(true)
	eventually(t, "it is gone", func() bool { return running(mark) == 0 })
}

// What is wrong with a sandbox is said with what to do about it.
func TestComplaint(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c := w.connect()
	w.fail(api.Errorf(api.CodeSandboxState, "sandbox is paused").With("status", "paused"))
	s := w.session(c)
	var errs bytes.Buffer
	s.Stderr = &errs
	var exit *ssh.ExitError
	if err := s.Run("true"); !errors.As(err, &exit) || exit.ExitStatus() != 255 {
		t.Errorf("%v", err)
	}
	if text := errs.String(); !strings.Contains(text, "is paused") || !strings.Contains(text, "pandastack sandbox resume "+boxID) {
		t.Errorf("%q", text)
	}
	if _, err := c.Dial("tcp", "localhost:80"); err == nil || !strings.Contains(err.Error(), "is paused") {
		t.Errorf("%v", err)
	}
}

// Bounds hold, and make room again.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *Config) { c.LoginWithin = 8 * time.Second }) // also what a busy machine needs
	c := w.connect()
	var open []ssh.Channel
	for range maxChannels {
		ch, reqs, err := c.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		go ssh.DiscardRequests(reqs)
		open = append(open, ch)
	}
	if _, _, err := c.OpenChannel("session", nil); err == nil {
		t.Error("one channel too many")
	}
	for _, ch := range open {
		ch.Close()
	}
	eventually(t, "there is room again", func() bool {
		s, err := c.NewSession()
		if err == nil {
			s.Close()
		}
		return err == nil
	})

	var silent []net.Conn // which never say who they are
	for range maxHandshakesOfAddr {
		nc, err := net.Dial("tcp", w.listen)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent = append(silent, nc)
	}
	eventually(t, "they are cut off", func() bool {
		c, err := w.login(boxID, w.key)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for _, nc := range silent[:1] {
		_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a silent client is not cut off")
		}
	}
	for range maxConnsOfKey - 1 {
		w.connect()
	}
	if c, err := w.login(boxID, w.key); err == nil {
		if _, err := c.NewSession(); err == nil {
			t.Error("one connection too many")
		}
		c.Close()
	}
}

// Files go both ways through the server inside.
func TestSFTP(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	c, err := sftp.NewClient(w.connect())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	want := bytes.Repeat([]byte("panda"), 1<<20)
	f, err := c.Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err = c.Open(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := f.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	f.Close()
	if here, err := c.Getwd(); err != nil || here != "/root" {
		t.Errorf("%q, %v", here, err)
	}
}
