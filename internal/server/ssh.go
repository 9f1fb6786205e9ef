package server

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/httpapi"
	"github.com/pandastack/pandastack/internal/sshd"
	"github.com/pandastack/pandastack/internal/store"
)

// sshHostKey gives the key that clients know the server by: one for all servers of
// a database, made by the first, so that a client is never told that it changed.
func sshHostKey(ctx context.Context, s *store.Store) (ssh.Signer, error) {
	var fresh [ed25519.SeedSize]byte
	rand.Read(fresh[:])
	text, err := s.Setting(ctx, "ssh_host_key", hex.EncodeToString(fresh[:]))
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != len(fresh) {
		return nil, api.Errorf(api.CodeStoreCorrupt, "the host key of SSH in the database is damaged")
	}
	return ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed))
}

// listenSSH takes the address of SSH, if it is to be served. Clients that come
// before the rest is ready wait in its queue.
func (s *server) listenSSH(ctx context.Context) error {
	if s.cfg.SSHListen == "" {
		return nil
	}
	l, err := listen(ctx, s.cfg.SSHListen)
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			return e.WithHint("Choose another address with --ssh-listen.")
		}
		return err
	}
	s.sshListener = l
	return nil
}

// sshAddr is where SSH is served; empty: nowhere.
func (s *server) sshAddr() string {
	if s.sshListener == nil {
		return ""
	}
	return s.sshListener.Addr().String()
}

// sshInfo is what the API says of SSH; nil: it is not served.
func (s *server) sshInfo(key ssh.Signer) *httpapi.SSH {
	if s.sshListener == nil {
		return nil
	}
	addr := s.sshListener.Addr().(*net.TCPAddr)
	info := &httpapi.SSH{
		Host: s.cfg.SSHHost, Port: addr.Port, Fingerprint: ssh.FingerprintSHA256(key.PublicKey()),
		HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))),
	}
	if info.Host == "" && !addr.IP.IsUnspecified() {
		info.Host = addr.IP.String()
	}
	return info
}

// serveSSH serves it, if it is to be served.
func (s *server) serveSSH(ctx context.Context, boxes sshd.Sandboxes, key ssh.Signer) {
	if s.sshListener == nil {
		return
	}
	l := s.sshListener
	d := sshd.New(sshd.Config{Sandboxes: boxes, HostKey: key, Log: s.log})
	s.ssh = s.start(ctx, "SSH server", func(ctx context.Context) error { return d.Serve(ctx, l) })
	s.log.Info("serving SSH", "addr", s.sshAddr())
}

// endSSH has it refuse new connections and begin to end those there are, beside the
// end of requests.
func (s *server) endSSH() {
	if s.ssh != nil {
		s.ssh.cancel()
	}
}

// closeSSH ends it with all connections.
func (s *server) closeSSH() error {
	err := s.ssh.stop()
	if s.sshListener != nil {
		s.sshListener.Close() // if it was never served
	}
	return err
}

// checkSSH looks at what a configuration says of SSH.
func (c Config) checkSSH() error {
	if c.SSHListen != "" {
		if _, port, err := net.SplitHostPort(c.SSHListen); err != nil || port == "" {
			return invalid("ssh listen", "%q is not host:port", c.SSHListen)
		}
	}
	if strings.ContainsAny(c.SSHHost, " \t\r\n/@") || len(c.SSHHost) > 253 {
		return invalid("ssh host", "%q is not the name or address of a host", c.SSHHost)
	}
	return nil
}
