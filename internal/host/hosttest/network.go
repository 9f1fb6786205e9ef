package hosttest

import (
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var networkChecks = []check{
	{"NetworkIsKeptAndMayBeSetAgain", networkIsKept},
	{"NetworkThatIsNoneIsRefused", networkThatIsNone},
	{"NetworkLogIsEmptyAtFirst", networkLogIsEmpty},
}

func networkIsKept(t *testing.T, s *suite) {
	spec := s.spec()
	spec.Network = host.Network{Rules: api.NetworkRules{Allow: []string{"203.0.113.0/24:443", "example.com"}}}
	sb := s.create(t, spec)
	if !sb.Network.Equal(spec.Network) {
		t.Errorf("created with %+v, is %+v", spec.Network, sb.Network)
	}
	other := host.Network{Rules: api.NetworkRules{EgressMbps: 50}, Links: []host.Link{{Group: api.NewID(), Name: "web"}}}
	for range 2 {
		if err := s.host.SetNetwork(deadline(t), spec.ID, other); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.host.Get(deadline(t), spec.ID)
	if err != nil || !got.Network.Equal(other) {
		t.Errorf("set to %+v, is %+v, %v", other, got.Network, err)
	}
	if err := s.host.SetNetwork(deadline(t), api.NewID(), other); api.CodeOf(err) != api.CodeSandboxNotFound {
		t.Errorf("of an unknown sandbox: %v", err)
	}
}

func networkThatIsNone(t *testing.T, s *suite) {
	bad := host.Network{Rules: api.NetworkRules{Allow: []string{"300.1.1.1"}}}
	spec := s.spec()
	spec.Network = bad
	s.deleteLater(t, spec.ID)
	if _, err := s.host.Create(deadline(t), spec); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Errorf("create: %v", err)
	}
	good := s.create(t, s.spec())
	if err := s.host.SetNetwork(deadline(t), good.ID, bad); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Errorf("set: %v", err)
	}
	if got, err := s.host.Get(deadline(t), good.ID); err != nil || !got.Network.Equal(host.Network{}) {
		t.Errorf("after a refusal: %+v, %v", got.Network, err)
	}
}

func networkLogIsEmpty(t *testing.T, s *suite) {
	sb := s.create(t, s.spec())
	if log, err := s.host.NetworkLog(deadline(t), sb.ID, 0, 10); err != nil || log.Connections == nil || len(log.Connections) > 10 {
		t.Errorf("%+v, %v", log, err)
	}
	if _, err := s.host.NetworkLog(deadline(t), api.NewID(), 0, 10); api.CodeOf(err) != api.CodeSandboxNotFound {
		t.Errorf("of an unknown sandbox: %v", err)
	}
}
