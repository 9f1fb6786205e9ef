package httpapi

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

func (f *wire) Network(context.Context, auth.Identity, string) (api.Network, error) {
	return api.Network{NetworkRules: api.NetworkRules{Allow: []string{"example.com"}}}, f.err
}
func (f *wire) SetNetwork(_ context.Context, _ auth.Identity, _ string, n api.Network) (api.Network, error) {
	f.note(func() { f.got = n })
	return n, f.err
}
func (f *wire) NetworkLog(_ context.Context, _ auth.Identity, _ string, since int64, limit int) (api.ConnectionLog, error) {
	f.note(func() { f.got = [2]int64{since, int64(limit)} })
	return api.ConnectionLog{Connections: []api.Connection{{ID: 7, Verdict: api.VerdictDenied}}}, f.err
}
func (f *wire) CreateNetwork(_ context.Context, _ auth.Identity, req api.CreateNetwork) (api.NetworkGroup, error) {
	return api.NetworkGroup{Name: req.Name, Members: []api.NetworkMember{}}, f.err
}
func (f *wire) Networks(context.Context, auth.Identity) (api.NetworkGroupList, error) {
	return api.NetworkGroupList{Networks: []api.NetworkGroup{}}, f.err
}
func (f *wire) GetNetwork(_ context.Context, _ auth.Identity, name string) (api.NetworkGroup, error) {
	return api.NetworkGroup{Name: name, Members: []api.NetworkMember{}}, f.err
}
func (f *wire) DeleteNetwork(_ context.Context, _ auth.Identity, name string) error {
	f.note(func() { f.got = name })
	return f.err
}

func TestNetworkRoutes(t *testing.T) {
	t.Parallel()
	f := &wire{}
	b := serve(t, f)
	const at = "/v1/sandboxes/k3v9x0q2m7c1b8n4t6zd/network"
	if body := b.read(b.do("GET", at, "")); !strings.Contains(body, `"allow":["example.com"]`) {
		t.Error(body)
	}
	no := false
	want := api.Network{NetworkRules: api.NetworkRules{Internet: &no, Deny: []string{"203.0.113.0/24"}}, Join: []string{"backend"}, Name: "web"}
	if resp := b.do("PUT", at, `{"internet":false,"deny":["203.0.113.0/24"],"join":["backend"],"name":"web"}`); resp.StatusCode != 200 || !reflect.DeepEqual(f.got, want) {
		t.Errorf("%d %+v", resp.StatusCode, f.got)
	}
	b.failure(b.do("PUT", at, `{"deny":"203.0.113.0/24"}`), api.CodeInvalidRequest)
	b.failure(b.do("PUT", at, `{"block":[]}`), api.CodeUnknownField)
	b.failure(b.do("PUT", at, `{"egress_mbps":-1}`), api.CodeInvalidRequest)
	for query, want := range map[string][2]int64{"": {0, 1000}, "?since=5&limit=2": {5, 2}} {
		if body := b.read(b.do("GET", at+"/log"+query, "")); !strings.Contains(body, `"verdict":"denied"`) || f.got != want {
			t.Errorf("%q: %s %v", query, body, f.got)
		}
	}
	b.failure(b.do("GET", at+"/log?limit=0", ""), api.CodeInvalidRequest)
	if resp := b.do("POST", "/v1/networks", `{"name":"backend"}`); resp.StatusCode != 201 || !strings.Contains(b.read(resp), `"members":[]`) {
		t.Error(resp.Status)
	}
	if body := b.read(b.do("GET", "/v1/networks", "")); !strings.Contains(body, `"networks":[]`) {
		t.Error(body)
	}
	if body := b.read(b.do("GET", "/v1/networks/backend", "")); !strings.Contains(body, `"name":"backend"`) {
		t.Error(body)
	}
	if resp := b.do("DELETE", "/v1/networks/backend", ""); resp.StatusCode != 204 || f.got != "backend" {
		t.Errorf("%d %v", resp.StatusCode, f.got)
	}
}
