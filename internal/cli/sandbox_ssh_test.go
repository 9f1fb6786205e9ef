package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestKnowHost(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	a := &app{getenv: func(name string) string { return map[string]string{"HOME": home}[name] }}
	info := api.SSHInfo{Host: "example.com", Port: 2222, User: api.NewID(), HostKey: "ssh-ed25519 AAAAone"}
	write := func(want string) {
		t.Helper()
		file, err := a.knowHost(info)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%q, want %q, %v", got, want, err)
		}
	}
	write("[example.com]:2222 ssh-ed25519 AAAAone\n")
	info.Host, info.Port = "::1", 22
	write("[example.com]:2222 ssh-ed25519 AAAAone\n::1 ssh-ed25519 AAAAone\n")
	info.Host, info.Port, info.HostKey = "example.com", 2222, "ssh-ed25519 AAAAtwo"
	write("[example.com]:2222 ssh-ed25519 AAAAtwo\n::1 ssh-ed25519 AAAAone\n")
	write("[example.com]:2222 ssh-ed25519 AAAAtwo\n::1 ssh-ed25519 AAAAone\n")

	for _, bad := range []func(*api.SSHInfo){
		func(i *api.SSHInfo) { i.Host = "-oProxyCommand=x" }, func(i *api.SSHInfo) { i.Host = "a b" }, func(i *api.SSHInfo) { i.Host = "" },
		func(i *api.SSHInfo) { i.HostKey = "ssh-ed25519 AAAA\n* ssh-ed25519 BBBB" }, func(i *api.SSHInfo) { i.HostKey = "x" },
		func(i *api.SSHInfo) { i.User = "-x" }, func(i *api.SSHInfo) { i.Port = 0 },
	} {
		in := info
		bad(&in)
		if _, err := a.knowHost(in); api.CodeOf(err) != api.CodeNotAServer {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

func FuzzReplaceHost(f *testing.F) {
	f.Add("a k1\nb k2\n", "a", "a k3")
	f.Add("a k1\na k2", "a", "a k3")
	f.Fuzz(func(t *testing.T, text, host, line string) {
		if host == "" || strings.ContainsAny(host+line, "\r\n ") {
			return
		}
		line = host + " " + line
		out := replaceHost(text, host, line)
		n := 0
		for l := range strings.Lines(out) {
			if name, _, _ := strings.Cut(strings.TrimRight(l, "\r\n"), " "); name == host {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines of %q in %q", n, host, out)
		}
	})
}

func TestPublicKeyFiles(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	a := &app{getenv: func(string) string { return home }, stdin: strings.NewReader("from standard input")}
	if _, err := a.publicKey(nil); api.CodeOf(err) != api.CodeInvalidRequest || !strings.Contains(api.AsError(err).Hint, "ssh-keygen") {
		t.Errorf("%v", err)
	}
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id_work.pub", "id_rsa.pub", "id_ed25519.pub", "id_ed25519", "known_hosts"} {
		if err := os.WriteFile(filepath.Join(home, ".ssh", name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, f := range a.publicKeyFiles() {
		names = append(names, filepath.Base(f))
	}
	if got := strings.Join(names, " "); got != "id_ed25519.pub id_rsa.pub id_work.pub" {
		t.Error(got)
	}
	if key, err := a.publicKey(nil); err != nil || key != "id_ed25519.pub" {
		t.Errorf("%q, %v", key, err)
	}
	if key, err := a.publicKey([]string{"-"}); err != nil || key != "from standard input" {
		t.Errorf("%q, %v", key, err)
	}
	if !sameKey("ssh-ed25519 AAAA me", "ssh-ed25519 AAAA\n") || sameKey("ssh-ed25519 AAAA", "ssh-ed25519 BBBB") || sameKey("", "") {
		t.Error("keys are compared wrongly")
	}
}
