package host_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

func TestOnlyTheControlPlaneMayCall(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	w := serve(t, l)
	_, err := w.client(t).Info(ctx(t))
	must(t, err)

	good, err := host.ClientTLS(files(w.dir, "control"), "host-1")
	must(t, err)
	ca, err := host.OpenAuthority(filepath.Join(w.dir, "ca"))
	must(t, err)
	must(t, ca.IssueHost(files(w.dir, "host2"), "host-2"))
	foreign, err := host.OpenAuthority(filepath.Join(w.dir, "foreign"))
	must(t, err)
	must(t, foreign.IssueControl(files(w.dir, "stranger"), "control"))

	cases := map[string]func(*tls.Config){
		"no certificate":                     func(c *tls.Config) { c.Certificates = nil },
		"a certificate of another authority": func(c *tls.Config) { c.Certificates = pair(t, files(w.dir, "stranger")) },
		"a host's certificate":               func(c *tls.Config) { c.Certificates = pair(t, files(w.dir, "host2")) },
		"TLS 1.2":                            func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
		"the name of another host":           func(c *tls.Config) { c.ServerName = "host-2" },
	}
	for name, spoil := range cases {
		config := good.Clone()
		spoil(config)
		c := client(t, w.addr, config)
		_, err := c.Info(ctx(t))
		if api.CodeOf(err) != api.CodeHostUnreachable {
			t.Errorf("%s: %v", name, err)
		}
		if conn, err := c.Dial(ctx(t), "x", 80); api.CodeOf(err) != api.CodeHostUnreachable {
			t.Errorf("%s, dial: %v %v", name, conn, err)
		}
	}

	// A stranger's authority does not vouch for our host.
	stranger, err := host.ClientTLS(files(w.dir, "stranger"), "host-1")
	must(t, err)
	if _, err := client(t, w.addr, stranger).Info(ctx(t)); api.CodeOf(err) != api.CodeHostUnreachable {
		t.Errorf("another authority: %v", err)
	}
	// Without TLS nothing is served.
	if _, err := client(t, w.addr, nil).Info(ctx(t)); api.CodeOf(err) != api.CodeHostUnreachable {
		t.Errorf("no TLS: %v", err)
	}
	// By address, which the host's certificate names too.
	byAddress, err := host.ClientTLS(files(w.dir, "control"), "")
	must(t, err)
	_, err = client(t, w.addr, byAddress).Info(ctx(t))
	must(t, err)
}

func pair(t *testing.T, f host.Files) []tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	must(t, err)
	return []tls.Certificate{c}
}

func TestAuthorityIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ca, err := host.OpenAuthority(filepath.Join(dir, "ca"))
			if err != nil {
				t.Error(err)
				return
			}
			if err := ca.IssueControl(files(dir, "c"+itoa(i)), "control"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first, err := os.ReadFile(files(dir, "c0").CA)
	must(t, err)
	for i := range 8 {
		f := files(dir, "c"+itoa(i))
		other, err := os.ReadFile(f.CA)
		must(t, err)
		if string(other) != string(first) {
			t.Error("two authorities were made")
		}
		for _, path := range []string{f.Key, f.Cert, f.CA, filepath.Join(dir, "ca", "authority.pem")} {
			info, err := os.Stat(path)
			must(t, err)
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "ca"))
	must(t, err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := host.OpenAuthority(filepath.Join(dir, "ca"))
	must(t, err)
	must(t, ca.IssueHost(files(dir, "h"), "h"))
	must(t, ca.IssueHost(files(dir, "i"), "i"))
	bad := map[string]host.Files{
		"missing":          files(dir, "none"),
		"another's key":    {CA: files(dir, "h").CA, Cert: files(dir, "h").Cert, Key: files(dir, "i").Key},
		"key as authority": {CA: files(dir, "h").Key, Cert: files(dir, "h").Cert, Key: files(dir, "h").Key},
	}
	for name, f := range bad {
		if _, err := host.ServerTLS(f); api.CodeOf(err) != api.CodeHostSetup {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := host.ClientTLS(f, "h"); api.CodeOf(err) != api.CodeHostSetup {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "ca", "authority.pem"), []byte("nonsense"), 0o600))
	if _, err := host.OpenAuthority(filepath.Join(dir, "ca")); api.CodeOf(err) != api.CodeHostSetup {
		t.Errorf("a damaged authority: %v", err)
	}
}
