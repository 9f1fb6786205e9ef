package control_test

import (
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/host"
)

func (w *world) hostNetwork(id string) host.Network {
	w.t.Helper()
	b, err := w.host.Get(w.t.Context(), id)
	must(w.t, err)
	return b.Network
}

// A sandbox has the network that was asked for, on its host too, and a fork's
// children and what starts from its snapshots have its rules.
func TestNetworkFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	_, err := w.CreateNetwork(ctx, alice, api.CreateNetwork{Name: "backend"})
	must(t, err)
	rules := api.NetworkRules{Allow: []string{"example.com"}, EgressMbps: 7}
	b, err := w.Create(ctx, alice, api.CreateSandbox{EgressMbps: 7, Network: &api.Network{
		NetworkRules: api.NetworkRules{Allow: rules.Allow}, Join: []string{"backend"}, Name: "web"}})
	must(t, err)
	is := w.hostNetwork(b.ID)
	if !is.Equal(host.Network{Rules: rules, Links: is.Links}) || len(is.Links) != 1 || is.Links[0].Name != "web" {
		t.Errorf("on the host: %+v", is)
	}
	n, err := w.Network(ctx, alice, b.ID)
	must(t, err)
	if n.EgressMbps != 7 || len(n.Join) != 1 || n.Join[0] != "backend" || n.Name != "web" {
		t.Errorf("%+v", n)
	}

	tree, err := w.Fork(ctx, alice, b.ID, api.Fork{})
	must(t, err)
	child := w.hostNetwork(tree.Children[0].ID)
	if !child.Equal(host.Network{Rules: rules, Links: []host.Link{{Group: is.Links[0].Group}}}) {
		t.Errorf("a child: %+v", child)
	}
	snap, err := w.Snapshot(ctx, alice, b.ID, api.CreateSnapshot{})
	must(t, err)
	from, err := w.Create(ctx, alice, api.CreateSandbox{FromSnapshot: snap.ID})
	must(t, err)
	if got := w.hostNetwork(from.ID); !got.Equal(host.Network{Rules: rules}) {
		t.Errorf("from a snapshot: %+v", got)
	}
	yes := true
	for _, c := range []struct {
		asks api.CreateSandbox
		want api.NetworkRules
	}{
		{api.CreateSandbox{EgressMbps: 9}, api.NetworkRules{Allow: rules.Allow, EgressMbps: 9}},
		{api.CreateSandbox{Network: &api.Network{}}, rules},
		{api.CreateSandbox{Network: &api.Network{NetworkRules: api.NetworkRules{Internet: &yes}}}, api.NetworkRules{Internet: &yes}},
		{api.CreateSandbox{Network: &api.Network{NetworkRules: api.NetworkRules{Deny: []string{"203.0.113.9"}}}}, api.NetworkRules{Deny: []string{"203.0.113.9"}}},
	} {
		c.asks.FromSnapshot = snap.ID
		b, err := w.Create(ctx, alice, c.asks)
		must(t, err)
		if got := w.hostNetwork(b.ID); !got.Equal(host.Network{Rules: c.want}) {
			t.Errorf("from a snapshot, asking for %+v: %+v", c.asks, got)
		}
	}
	twin, err := w.Fork(ctx, alice, b.ID, api.Fork{Network: &api.Network{Join: []string{"backend"}, Name: "twin"}})
	must(t, err)
	if got := w.hostNetwork(twin.Children[0].ID); !got.Equal(host.Network{Rules: rules, Links: []host.Link{{Group: is.Links[0].Group, Name: "twin"}}}) {
		t.Errorf("a child with a name: %+v", got)
	}
	_, err = w.Fork(ctx, alice, b.ID, api.Fork{Count: 2, Network: &api.Network{Join: []string{"backend"}, Name: "twin"}})
	wantCode(t, err, api.CodeInvalidRequest)
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{NetworksPerOrg: 2})
	ctx := t.Context()
	join := func(names ...string) *api.Network { return &api.Network{Join: names, Name: "web"} }
	_, err := w.Create(ctx, alice, api.CreateSandbox{Network: join("backend")})
	wantCode(t, err, api.CodeNetworkNotFound)
	for _, bad := range []string{"", "-a", "A", "a_b", "a.b", "ü"} {
		_, err := w.CreateNetwork(ctx, alice, api.CreateNetwork{Name: bad})
		wantCode(t, err, api.CodeInvalidRequest)
	}
	for _, name := range []string{"backend", "front"} {
		_, err := w.CreateNetwork(ctx, alice, api.CreateNetwork{Name: name})
		must(t, err)
	}
	_, err = w.CreateNetwork(ctx, alice, api.CreateNetwork{Name: "third"})
	wantCode(t, err, api.CodeQuotaNetworks)
	_, err = w.CreateNetwork(ctx, mallory, api.CreateNetwork{Name: "backend"})
	must(t, err)
	_, err = w.CreateNetwork(ctx, mallory, api.CreateNetwork{Name: "backend"})
	wantCode(t, err, api.CodeNetworkExists)
	_, err = w.Create(ctx, mallory, api.CreateSandbox{Network: join("front")})
	wantCode(t, err, api.CodeNetworkNotFound)

	web, err := w.Create(ctx, alice, api.CreateSandbox{Network: join("backend", "front")})
	must(t, err)
	_, err = w.Create(ctx, alice, api.CreateSandbox{Network: join("front")})
	wantCode(t, err, api.CodeNetworkName)
	other, err := w.Create(ctx, mallory, api.CreateSandbox{Network: join("backend")})
	must(t, err)
	if w.hostNetwork(other.ID).Links[0].Group == w.hostNetwork(web.ID).Links[0].Group {
		t.Error("two owners share a network")
	}
	g, err := w.GetNetwork(ctx, alice, "backend")
	must(t, err)
	if len(g.Members) != 1 || g.Members[0].SandboxID != web.ID || g.Members[0].Name != "web" || g.Members[0].Address == "" {
		t.Errorf("%+v", g)
	}
	wantCode(t, w.DeleteNetwork(ctx, alice, "backend"), api.CodeNetworkInUse)
	wantCode(t, w.DeleteNetwork(ctx, alice, "none"), api.CodeNetworkNotFound)
	must(t, w.Delete(ctx, alice, web.ID))
	must(t, w.DeleteNetwork(ctx, alice, "backend"))
	list, err := w.Networks(ctx, alice)
	must(t, err)
	if len(list.Networks) != 1 || list.Networks[0].Name != "front" || len(list.Networks[0].Members) != 0 {
		t.Errorf("%+v", list)
	}
}

// A host that cannot enforce what is asked leaves all as it was, and one that was
// not told is told later.
func TestSetNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b, err := w.Create(ctx, alice, api.CreateSandbox{})
	must(t, err)
	_, err = w.SetNetwork(ctx, mallory, b.ID, api.Network{})
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = w.SetNetwork(ctx, alice, b.ID, api.Network{NetworkRules: api.NetworkRules{Allow: []string{"a/b"}}})
	wantCode(t, err, api.CodeInvalidRequest)

	want := api.Network{NetworkRules: api.NetworkRules{Deny: []string{"203.0.113.9"}}}
	w.host.mu.Lock()
	w.host.networkErr = api.Errorf(api.CodeKernelFeature, "this kernel cannot")
	w.host.mu.Unlock()
	_, err = w.SetNetwork(ctx, alice, b.ID, want)
	wantCode(t, err, api.CodeKernelFeature)
	if n, err := w.Network(ctx, alice, b.ID); err != nil || len(n.Deny) != 0 {
		t.Errorf("after a refusal: %+v, %v", n, err)
	}
	w.host.mu.Lock()
	w.host.networkErr = nil
	w.host.mu.Unlock()
	_, err = w.SetNetwork(ctx, alice, b.ID, want)
	must(t, err)
	if got := w.hostNetwork(b.ID); len(got.Rules.Deny) != 1 {
		t.Errorf("on the host: %+v", got)
	}

	// The process died between row and host.
	w.host.mu.Lock()
	w.host.boxes[b.ID].Network = host.Network{}
	w.host.mu.Unlock()
	stop := w.start()
	for end := time.Now().Add(30 * time.Second); len(w.hostNetwork(b.ID).Rules.Deny) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the host was not told again")
		}
	}
	stop()
	log, err := w.NetworkLog(ctx, alice, b.ID, 1, 0)
	must(t, err)
	if len(log.Connections) != 1 {
		t.Errorf("%+v", log)
	}
	_, err = w.NetworkLog(ctx, mallory, b.ID, 0, 0)
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = w.NetworkLog(ctx, alice, b.ID, 0, 1<<20)
	wantCode(t, err, api.CodeInvalidRequest)
}
