package control_test

import (
	"crypto/dsa" //lint:ignore SA1019 such a key is one to be refused
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/store"
	"github.com/pandastack/pandastack/internal/store/pgtest"
)

// publicLine is a public key of a crypto package as one line.
func publicLine(t *testing.T, key any) string {
	t.Helper()
	k, err := ssh.NewPublicKey(key)
	must(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

func newLine(t *testing.T) string {
	t.Helper()
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return publicLine(t, pub)
}

// issue keeps the API key of an identity.
func (w *world) issue(who auth.Identity) {
	w.t.Helper()
	must(w.t, w.store.AddKey(w.t.Context(), store.Key{Hash: "hash of " + who.KeyPrefix, Prefix: who.KeyPrefix, Org: who.Org, CreatedAt: time.Now()}))
}

func TestSSHKeys(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]func(t *testing.T) *world{
		"sqlite":   func(t *testing.T) *world { return newWorld(t, control.Limits{}) },
		"postgres": func(t *testing.T) *world { return newWorldOn(t, pgtest.DSN(t), control.Limits{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSSHKeys(t, world(t))
		})
	}
}

func testSSHKeys(t *testing.T, w *world) {
	ctx := t.Context()
	ci := auth.Identity{Org: alice.Org, KeyPrefix: "pds_cccccccc"}
	for _, who := range []auth.Identity{alice, mallory, ci} {
		w.issue(who)
	}
	line := newLine(t)
	k, err := w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: "  " + line + " me@laptop\n"})
	must(t, err)
	if k.Name != "me@laptop" || k.PublicKey != line || !strings.HasPrefix(k.Fingerprint, "SHA256:") || k.CreatedAt.IsZero() {
		t.Errorf("%+v", k)
	}
	again, err := w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: line, Name: "work"})
	must(t, err)
	if again.Name != "work" || !again.CreatedAt.Equal(k.CreatedAt) || again.Fingerprint != k.Fingerprint {
		t.Errorf("%+v", again)
	}
	box, err := w.Create(ctx, alice, api.CreateSandbox{})
	must(t, err)
	who, err := w.SSHIdentity(ctx, box.ID, k.Fingerprint)
	must(t, err)
	if who.Org != alice.Org || who.Admin {
		t.Errorf("%+v", who)
	}

	// Whatever is wrong, the answer is the same.
	_, unknown := w.SSHIdentity(ctx, "k3v9x0q2m7c1b8n4t6zd", k.Fingerprint)
	_, garbage := w.SSHIdentity(ctx, "../x", k.Fingerprint)
	_, wrong := w.SSHIdentity(ctx, box.ID, "SHA256:x")
	other, err := w.AddSSHKey(ctx, mallory, api.AddSSHKey{PublicKey: newLine(t)})
	must(t, err)
	_, foreign := w.SSHIdentity(ctx, box.ID, other.Fingerprint)
	for _, err := range []error{unknown, garbage, wrong, foreign} {
		wantCode(t, err, api.CodeForbidden)
		if err.Error() != unknown.Error() {
			t.Errorf("%v and %v", err, unknown)
		}
	}

	// One key of two owners opens the sandboxes of both, and is each one's own.
	_, err = w.AddSSHKey(ctx, mallory, api.AddSSHKey{PublicKey: line})
	must(t, err)
	if list, err := w.SSHKeys(ctx, alice); err != nil || len(list.Keys) != 1 || list.Keys[0].Name != "work" {
		t.Errorf("%+v, %v", list, err)
	}
	wantCode(t, w.DeleteSSHKey(ctx, alice, other.Fingerprint), api.CodeSSHKeyNotFound)
	plain := strings.NewReplacer("/", "_", "+", "-").Replace(strings.TrimPrefix(k.Fingerprint, "SHA256:"))
	must(t, w.DeleteSSHKey(ctx, alice, plain))
	wantCode(t, w.DeleteSSHKey(ctx, alice, k.Fingerprint), api.CodeSSHKeyNotFound)
	_, err = w.SSHIdentity(ctx, box.ID, k.Fingerprint)
	wantCode(t, err, api.CodeForbidden)

	// A key ends with the API key that added it, and with no other one that added
	// it again.
	_, err = w.AddSSHKey(ctx, ci, api.AddSSHKey{PublicKey: line})
	must(t, err)
	leaked := auth.Identity{Org: alice.Org, KeyPrefix: "pds_dddddddd"}
	w.issue(leaked)
	if taken, err := w.AddSSHKey(ctx, leaked, api.AddSSHKey{PublicKey: line, Name: "mine"}); err != nil || taken.Name != "mine" {
		t.Errorf("%+v, %v", taken, err)
	}
	_, err = w.store.RevokeKey(ctx, leaked.Org, leaked.KeyPrefix, time.Now())
	must(t, err)
	who, err = w.SSHIdentity(ctx, box.ID, k.Fingerprint)
	must(t, err)
	if who.KeyPrefix != ci.KeyPrefix {
		t.Errorf("the key went over to %s", who.KeyPrefix)
	}
	_, err = w.store.RevokeKey(ctx, ci.Org, ci.KeyPrefix, time.Now())
	must(t, err)
	_, err = w.SSHIdentity(ctx, box.ID, k.Fingerprint)
	wantCode(t, err, api.CodeForbidden)
	if list, err := w.SSHKeys(ctx, alice); err != nil || len(list.Keys) != 0 || list.Keys == nil {
		t.Errorf("%+v, %v", list, err)
	}

	// Then it is as if it had never been there.
	_, err = w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: line})
	must(t, err)
	who, err = w.SSHIdentity(ctx, box.ID, k.Fingerprint)
	must(t, err)
	if who.KeyPrefix != alice.KeyPrefix {
		t.Errorf("it came back with %s", who.KeyPrefix)
	}
}

func TestSSHKeyBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.issue(alice)
	ctx := t.Context()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	must(t, err)
	good, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	old := &dsa.PrivateKey{}
	must(t, dsa.GenerateParameters(&old.Parameters, rand.Reader, dsa.L1024N160))
	must(t, dsa.GenerateKey(old, rand.Reader))
	line := newLine(t)
	for what, bad := range map[string]string{
		"nothing": " \n", "words": "hello world", "half a key": line[:40], "two keys": line + "\n" + newLine(t), "long": line + strings.Repeat("x", 20<<10),
		"a private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", "options": `command="ls",no-pty ` + line, "a small RSA key": publicLine(t, &small.PublicKey),
		"DSA": publicLine(t, &old.PublicKey), "a certificate": "ssh-ed25519-cert-v01@openssh.com AAAA",
	} {
		if _, err := w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: bad}); api.CodeOf(err) != api.CodeInvalidRequest || api.AsError(err).Details["field"] != "public_key" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"a\nb", strings.Repeat("x", 200), "\xff"} {
		_, err := w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: line, Name: name})
		wantCode(t, err, api.CodeInvalidRequest)
	}
	for _, ok := range []string{publicLine(t, &good.PublicKey), publicLine(t, &curve.PublicKey)} {
		_, err := w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: ok + " \x1b[31mred"})
		must(t, err)
	}
	for i := range 98 {
		_, err := w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: newLine(t), Name: fmt.Sprint(i)})
		must(t, err)
	}
	_, err = w.AddSSHKey(ctx, alice, api.AddSSHKey{PublicKey: newLine(t)})
	wantCode(t, err, api.CodeQuotaSSHKeys)
	list, err := w.SSHKeys(ctx, alice)
	must(t, err)
	for _, k := range list.Keys {
		if strings.ContainsRune(k.Name, '\x1b') {
			t.Errorf("%q", k.Name)
		}
	}
}

func FuzzAddSSHKey(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINPK0LnAC/l6+TOTLAnEBKN69LruRhE2GUyVW9ahK05c me")
	f.Add(`command="x" ssh-rsa AAAA`)
	f.Add("ssh-dss AAAA")
	f.Fuzz(func(t *testing.T, line string) {
		k, err := control.ReadSSHKey(line)
		if err != nil && api.CodeOf(err) != api.CodeInvalidRequest {
			t.Fatal(err)
		}
		if err == nil && (strings.ContainsAny(k, "\r\n") || len(k) > 20<<10) {
			t.Errorf("%q", k)
		}
	})
}
