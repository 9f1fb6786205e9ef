package httpapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

func (f *wire) AddSSHKey(_ context.Context, _ auth.Identity, req api.AddSSHKey) (api.SSHKey, error) {
	f.note(func() { f.got = req })
	return api.SSHKey{Fingerprint: "SHA256:a/b+c", Name: req.Name, PublicKey: req.PublicKey}, f.err
}
func (f *wire) SSHKeys(context.Context, auth.Identity) (api.SSHKeyList, error) {
	return api.SSHKeyList{Keys: []api.SSHKey{{Fingerprint: "SHA256:a/b+c"}}}, f.err
}
func (f *wire) DeleteSSHKey(_ context.Context, _ auth.Identity, fingerprint string) error {
	f.note(func() { f.got = fingerprint })
	return f.err
}

func TestSSHRoutes(t *testing.T) {
	t.Parallel()
	f := &wire{}
	b := serve(t, f)
	resp := b.do("POST", "/v1/ssh-keys", `{"public_key":"ssh-ed25519 AAAA","name":"n"}`)
	if body := b.read(resp); resp.StatusCode != 201 || !strings.Contains(body, `"fingerprint":"SHA256:a/b+c"`) || f.got != (api.AddSSHKey{PublicKey: "ssh-ed25519 AAAA", Name: "n"}) {
		t.Errorf("%d %s %+v", resp.StatusCode, body, f.got)
	}
	b.failure(b.do("POST", "/v1/ssh-keys", `{}`), api.CodeInvalidRequest)
	b.failure(b.do("POST", "/v1/ssh-keys", `{"public_key":"x","admin":true}`), api.CodeUnknownField)
	if body := b.read(b.do("GET", "/v1/ssh-keys", "")); !strings.Contains(body, `"keys":[{`) {
		t.Error(body)
	}
	// A fingerprint has / and + in it.
	for path, want := range map[string]string{"SHA256:a%2Fb+c": "SHA256:a/b+c", "a_b-c": "a_b-c"} {
		if resp := b.do("DELETE", "/v1/ssh-keys/"+path, ""); resp.StatusCode != 204 || f.got != want {
			t.Errorf("%s: %d, %v", path, resp.StatusCode, f.got)
		}
	}
	path := "/v1/sandboxes/" + api.NewID() + "/ssh"
	if e := b.failure(b.do("GET", path, ""), api.CodeUnsupported); !strings.Contains(e.Hint, "--ssh-listen") {
		t.Error(e.Hint)
	}
}

func TestSSHInfo(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{"": "127.0.0.1", "sandboxes.example.com": "sandboxes.example.com"} {
		f := &wire{}
		b := serve(t, f)
		b.api.SSH = &SSH{Host: host, Port: 2222, HostKey: "ssh-ed25519 AAAA", Fingerprint: "SHA256:x"}
		id := api.NewID()
		var got api.SSHInfo
		if body := b.read(b.do("GET", "/v1/sandboxes/"+id+"/ssh", "")); json.Unmarshal([]byte(body), &got) != nil {
			t.Fatal(body)
		}
		if got != (api.SSHInfo{Host: want, Port: 2222, User: id, HostKey: "ssh-ed25519 AAAA", Fingerprint: "SHA256:x", Command: "ssh -p 2222 " + id + "@" + want}) {
			t.Errorf("%+v", got)
		}
		if len(f.uses) != 0 {
			t.Error("asking how to reach a sandbox is no use of it")
		}
	}
}
