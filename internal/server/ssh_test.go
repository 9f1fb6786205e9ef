package server

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// The host key is made once, and one that is damaged is not replaced in silence.
func TestSSHHostKey(t *testing.T) {
	t.Parallel()
	open := func(name string) *store.Store {
		s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), name), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open("a.db")
	one, err := sshHostKey(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	two, err := sshHostKey(t.Context(), s)
	if err != nil || !bytes.Equal(one.PublicKey().Marshal(), two.PublicKey().Marshal()) || one.PublicKey().Type() != "ssh-ed25519" {
		t.Errorf("%v, %v, %v", one, two, err)
	}
	bad := open("b.db")
	if _, err := bad.Setting(t.Context(), "ssh_host_key", "nonsense"); err != nil {
		t.Fatal(err)
	}
	if _, err := sshHostKey(t.Context(), bad); api.CodeOf(err) != api.CodeStoreCorrupt {
		t.Errorf("%v", err)
	}
}

func TestSSHConfig(t *testing.T) {
	t.Parallel()
	for _, bad := range []Config{{SSHListen: "2222"}, {SSHListen: "x:"}, {SSHHost: "a b"}, {SSHHost: "me@host"}, {SSHHost: "http://x"}} {
		if err := bad.Validate(); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, good := range []Config{{}, {SSHListen: "127.0.0.1:0", SSHHost: "example.com"}, {SSHListen: "[::]:2222"}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}
