// Package sshd lets people into sandboxes with the SSH clients they have: shells,
// commands, file transfer and port forwarding.
//
// # Who is let in
//
// The user name of a login is the id of a sandbox, and only public keys are
// accepted. Whether a key may use a sandbox is for Sandboxes to say, by the rules
// of the API; an unknown sandbox, somebody else's and a wrong key look the same
// from outside. The question is asked again for every channel and with every
// keepalive, so that a key that was removed ends what it had opened.
//
// # What there is
//
//   - session: a shell (the login shell of the sandbox's user in its home
//     directory), a command (by the same shell with -c) or the subsystem sftp, with
//     or without a terminal. Output is separate, the end of input is passed on, and
//     the answer is the exit status or the signal. A hibernated sandbox is woken.
//   - direct-tcpip (ssh -L, -D): to ports of the sandbox itself, on its own
//     addresses and on its loopback, and nowhere else.
//   - tcpip-forward (ssh -R): listens on the sandbox's loopback, whatever address
//     the client names, as OpenSSH's server does by default.
//
// Everything else is refused: agent forwarding, because code nobody has reviewed
// could then use the keys of whoever looks at it, X11, tunnels and sockets.
//
// A sandbox is in use, and does not go to sleep, while a session, a forwarded
// connection or a listener of it is open. A connection with none of these does not
// keep it awake.
//
// # The end
//
// When a client leaves, or vanishes without a word, what it ran gets SIGHUP, and
// five seconds later SIGKILL with all that it started. What ignores SIGHUP, or has
// left the session as nohup and tmux do, goes on if the program itself has ended: it
// is the same as with any other SSH server. The end of this server ends connections
// in the same way.
//
// # Bounds
//
// All are constants below. What waits for a slow reader inside a sandbox is the
// window of its channel, 2 MiB, which the protocol library fixes, as it does the
// largest packet, 256 KiB.
package sshd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// Bounds.
const (
	maxHandshakes       = 128 // at a time, of all clients
	maxHandshakesOfAddr = 16  // at a time, of one address
	maxConns            = 1024
	maxConnsOfKey       = 32
	maxChannels         = 32 // of a connection, that the client opened
	maxReverse          = 32 // of a connection, that programs in the sandbox opened
	maxListeners        = 16 // of a connection
	maxAuthTries        = 10 // keys that an agent offers count

	loginWithin = 30 * time.Second
	keepAlive   = 15 * time.Second
	lostAfter   = 45 * time.Second // without an answer to a keepalive
)

// Sandboxes is what the server asks of the control plane; *control.Service is it.
// Every method authorises the caller itself, and its errors carry api codes.
type Sandboxes interface {
	// SSHIdentity says as whom the holder of a key uses a sandbox. It must not
	// tell why it refuses.
	SSHIdentity(ctx context.Context, id, fingerprint string) (auth.Identity, error)
	Get(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error)
	// Guest, StartProcess and Dial wake the sandbox.
	Guest(ctx context.Context, who auth.Identity, id string) (*guest.Client, error)
	StartProcess(ctx context.Context, who auth.Identity, id string, cmd guest.Command) (*guest.Process, *guest.Client, error)
	Dial(ctx context.Context, who auth.Identity, id string, port int) (net.Conn, error)
	// Use says that a use of a sandbox has begun, and done that it ended. Touch
	// says that a byte moved.
	Use(id string) (done func())
	Touch(id string)
}

// Config is what a server is made of. All but the times must be set.
type Config struct {
	Sandboxes Sandboxes
	HostKey   ssh.Signer
	Log       *slog.Logger
	// GuestProgram is the path inside of the guest program, which is the file
	// server and the relay as well; empty: GuestProgram of this package.
	GuestProgram string
	// LoginWithin and KeepAlive take the place of the defaults; for tests.
	LoginWithin, KeepAlive, LostAfter time.Duration
}

// GuestProgram is where every sandbox has the guest program.
const GuestProgram = "/.pandastack/guest"

// Server serves SSH. Its methods may be called concurrently.
type Server struct {
	Config
	mu         sync.Mutex
	handshakes int
	byAddr     map[netip.Addr]int
	conns      int
	byKey      map[string]int
}

// New makes a server. It starts nothing.
func New(c Config) *Server {
	if c.GuestProgram == "" {
		c.GuestProgram = GuestProgram
	}
	if c.LoginWithin == 0 {
		c.LoginWithin = loginWithin
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = keepAlive
	}
	if c.LostAfter == 0 {
		c.LostAfter = lostAfter
	}
	return &Server{Config: c, byAddr: map[netip.Addr]int{}, byKey: map[string]int{}}
}

// Serve accepts connections until ctx ends, then closes the listener, ends all
// connections and returns when what they ran has ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for wait := 5 * time.Millisecond; ; {
		nc, err := l.Accept()
		switch {
		case err == nil:
			wait = 5 * time.Millisecond
			all.Go(func() { s.serve(ctx, nc) })
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if ctx.Err() != nil {
				return nil
			}
			return err
		default: // too many open files: it may get better
			s.Log.Warn("an SSH connection was not accepted", "error", err)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			wait = min(2*wait, time.Second)
		}
	}
}

// serve does the handshake and serves the connection until its end.
func (s *Server) serve(ctx context.Context, nc net.Conn) {
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	sc, chans, reqs, err := s.handshake(ctx, nc)
	if err != nil {
		s.Log.Debug("an SSH handshake failed", "remote", nc.RemoteAddr().String(), "error", err)
		return
	}
	defer sc.Close()
	c := newConn(s, nc, sc)
	if !s.enter(c.key) {
		s.Log.Warn("an SSH connection was refused: too many are open", "sandbox_id", c.id, "key", c.key)
		return
	}
	defer s.leave(c.key)
	s.Log.Info("SSH connection", "sandbox_id", c.id, "org", c.who.Org, "key", c.key, "remote", nc.RemoteAddr().String())
	began := time.Now()
	c.serve(ctx, chans, reqs)
	s.Log.Info("SSH connection ended", "sandbox_id", c.id, "key", c.key, "after_ms", time.Since(began).Milliseconds())
}

// handshake lets a client in, or not, within the time for that.
func (s *Server) handshake(ctx context.Context, nc net.Conn) (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	addr := addrOf(nc)
	if !s.meet(addr) {
		return nil, nil, nil, errors.New("too many handshakes are under way")
	}
	defer s.met(addr)
	ctx, cancel := context.WithTimeout(ctx, s.LoginWithin)
	defer cancel()
	if err := nc.SetDeadline(time.Now().Add(s.LoginWithin)); err != nil {
		return nil, nil, nil, err
	}
	sc, chans, reqs, err := ssh.NewServerConn(nc, s.config(ctx))
	if err != nil {
		return nil, nil, nil, err
	}
	return sc, chans, reqs, nc.SetDeadline(time.Time{})
}

// Names of what a login has found out, among the library's permissions.
const (
	permOrg   = "org"
	permBy    = "by"
	permName  = "name"
	permPrint = "fingerprint"
)

// config is that of one handshake.
func (s *Server) config(ctx context.Context) *ssh.ServerConfig {
	c := &ssh.ServerConfig{
		MaxAuthTries:  maxAuthTries,
		ServerVersion: "SSH-2.0-PandaStack",
		// SHA-1 and DSA are left out.
		PublicKeyAuthAlgorithms: []string{
			ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
			ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
			ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
		},
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			print := ssh.FingerprintSHA256(key)
			who, err := s.Sandboxes.SSHIdentity(ctx, meta.User(), print)
			if err != nil {
				return nil, err // the client is told nothing of it
			}
			return &ssh.Permissions{Extensions: map[string]string{
				permOrg: who.Org, permBy: who.KeyPrefix, permName: who.Name, permPrint: print,
			}}, nil
		},
	}
	c.AddHostKey(s.HostKey)
	return c
}

func addrOf(nc net.Conn) netip.Addr {
	ap, err := netip.ParseAddrPort(nc.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// meet counts a handshake that begins, if there is room for it.
func (s *Server) meet(addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handshakes >= maxHandshakes || s.byAddr[addr] >= maxHandshakesOfAddr {
		return false
	}
	s.handshakes++
	s.byAddr[addr]++
	return true
}

func (s *Server) met(addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handshakes--
	if s.byAddr[addr]--; s.byAddr[addr] == 0 {
		delete(s.byAddr, addr)
	}
}

// enter counts a connection that begins, if there is room for it.
func (s *Server) enter(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= maxConns || s.byKey[key] >= maxConnsOfKey {
		return false
	}
	s.conns++
	s.byKey[key]++
	return true
}

func (s *Server) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	if s.byKey[key]--; s.byKey[key] == 0 {
		delete(s.byKey, key)
	}
}
