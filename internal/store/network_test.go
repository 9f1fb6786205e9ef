package store_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		add := func(org, name string) store.Join {
			t.Helper()
			g := store.NetworkGroup{ID: api.NewID(), Org: org, Name: name, CreatedAt: time.Now().UTC()}
			must(t, s.CreateNetwork(ctx, &g, 2))
			return store.Join{ID: g.ID, Name: name}
		}
		back, front := add("o", "back"), add("o", "front")
		if err := s.CreateNetwork(ctx, &store.NetworkGroup{ID: api.NewID(), Org: "o", Name: "third"}, 2); api.CodeOf(err) != api.CodeQuotaNetworks {
			t.Fatal(err)
		}
		if err := s.CreateNetwork(ctx, &store.NetworkGroup{ID: api.NewID(), Org: "o", Name: "back"}, 9); !errors.Is(err, store.ErrConflict) {
			t.Fatal(err)
		}
		add("other", "back")
		found, err := s.NetworkIDs(ctx, "o", []string{"back", "none", "front"})
		if err != nil || !reflect.DeepEqual(found, []store.Join{back, front}) {
			t.Fatalf("%+v %v", found, err)
		}

		no := false
		web := newSandbox("o")
		web.Status, web.GuestIP = api.StatusRunning, "10.200.0.2"
		web.Network = store.Network{Rules: api.NetworkRules{Internet: &no, Allow: []string{"a.com"}}, Name: "web", Join: []store.Join{back, front}}
		must(t, s.CreateSandbox(ctx, web, 10))
		got, err := s.GetSandbox(ctx, web.ID)
		if err != nil || !reflect.DeepEqual(got.Network, web.Network) {
			t.Fatalf("%+v %v", got.Network, err)
		}
		twin := newSandbox("o")
		twin.Network = store.Network{Name: "web", Join: []store.Join{front}}
		if err := s.CreateSandbox(ctx, twin, 10); api.CodeOf(err) != api.CodeNetworkName {
			t.Fatal(err)
		}
		if _, err := s.GetSandbox(ctx, twin.ID); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("a row whose name was taken is there: %v", err)
		}
		groups, err := s.Networks(ctx, "o", "back")
		if err != nil || len(groups) != 1 || !reflect.DeepEqual(groups[0].Members, []api.NetworkMember{{SandboxID: web.ID, Name: "web", Address: "10.200.0.2"}}) {
			t.Fatalf("%+v %v", groups, err)
		}
		if err := s.DeleteNetwork(ctx, "o", "back"); api.CodeOf(err) != api.CodeNetworkInUse {
			t.Fatal(err)
		}

		// It leaves one and is there without a name in the other.
		web.Network = store.Network{Join: []store.Join{front}}
		must(t, s.SetSandboxNetwork(ctx, web))
		must(t, s.DeleteNetwork(ctx, "o", "back"))
		if err := s.DeleteNetwork(ctx, "o", "back"); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		must(t, s.CreateSandbox(ctx, twin, 10))
		// One that has failed lets go of its name.
		twin.Status = api.StatusFailed
		must(t, s.UpdateSandbox(ctx, twin))
		groups, err = s.Networks(ctx, "o", "")
		if err != nil || len(groups) != 1 || !reflect.DeepEqual(groups[0].Members, []api.NetworkMember{{SandboxID: web.ID, Address: "10.200.0.2"}}) {
			t.Fatalf("%+v %v", groups, err)
		}
		must(t, s.DeleteSandbox(ctx, web.ID, time.Now()))
		must(t, s.DeleteNetwork(ctx, "o", "front"))
		if err := s.SetSandboxNetwork(ctx, web); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		web.Network.Join = []store.Join{front}
		if err := s.CreateSandbox(ctx, web, 10); api.CodeOf(err) != api.CodeNetworkNotFound {
			t.Fatalf("joining a network that is gone: %v", err)
		}
	})
}
