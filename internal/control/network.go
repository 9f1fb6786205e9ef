package control

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/netrule"
	"github.com/pandastack/pandastack/internal/store"
)

// The rules of the network. What a sandbox may reach is its own from create on,
// through sleep, rollback and moves; a fork's children and what starts from one
// of its snapshots begin with its rules. A child joins its parent's networks, and
// nothing else does so unasked. A name in a network belongs to one sandbox, so a
// child is there under its id, or under a name of its own.

const (
	maxJoins = 8

	maxConnections     = 10000
	defaultConnections = 1000
)

var networkName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`) })

// networkOf checks what a caller asks of the network and finds the groups that
// it names. Nil is the default.
func (s *Service) networkOf(ctx context.Context, org string, n *api.Network) (store.Network, error) {
	if n == nil {
		return store.Network{}, nil
	}
	if _, err := netrule.Parse(n.NetworkRules); err != nil {
		return store.Network{}, err
	}
	out := store.Network{Rules: n.NetworkRules, Name: n.Name}
	switch {
	case len(n.Join) > maxJoins:
		return out, invalid("network.join", "a sandbox joins at most %d networks", maxJoins)
	case n.Name != "" && (!networkName().MatchString(n.Name) || api.ValidID(n.Name)):
		return out, invalid("network.name", "network.name must be 1 to 40 of a-z, 0-9 and - within, and not look like a sandbox's id")
	case n.Name != "" && len(n.Join) == 0:
		return out, invalid("network.name", "network.name is a name in the networks of network.join, and there are none")
	}
	for i, name := range n.Join {
		if slices.Contains(n.Join[:i], name) {
			return out, invalid("network.join", "network %.40q is named twice", name)
		}
	}
	if len(n.Join) == 0 {
		return out, nil
	}
	found, err := s.store.NetworkIDs(ctx, org, n.Join)
	if err != nil {
		return out, err
	}
	for _, name := range n.Join {
		if !slices.ContainsFunc(found, func(j store.Join) bool { return j.Name == name }) {
			return out, noNetwork(name)
		}
	}
	out.Join = found
	return out, nil
}

// askedNetwork is the network of a create, where egress_mbps may stand alone.
func askedNetwork(req api.CreateSandbox) (*api.Network, error) {
	if req.EgressMbps == 0 {
		return req.Network, nil
	}
	n := api.Network{}
	if req.Network != nil {
		n = *req.Network
	}
	if n.EgressMbps != 0 && n.EgressMbps != req.EgressMbps {
		return nil, invalid("egress_mbps", "egress_mbps and network.egress_mbps are the same; give one of the two")
	}
	n.EgressMbps = req.EgressMbps
	return &n, nil
}

// inherit gives what starts from a sandbox the rules of that, unless it was asked
// for others: who asks for a cap alone, or to join a network, does not mean to
// open what was closed. A cap that was asked for counts.
func inherit(asked, origin api.NetworkRules) api.NetworkRules {
	if asked.Internet != nil || len(asked.Allow)+len(asked.Deny) > 0 {
		return asked
	}
	if asked.EgressMbps != 0 {
		origin.EgressMbps = asked.EgressMbps
	}
	return origin
}

// hostNetwork is a network as a host is told it.
func hostNetwork(n store.Network) host.Network {
	out := host.Network{Rules: n.Rules}
	for _, j := range n.Join {
		out.Links = append(out.Links, host.Link{Group: j.ID, Name: n.Name})
	}
	return out
}

func externalNetwork(n store.Network) api.Network {
	out := api.Network{NetworkRules: n.Rules, Name: n.Name}
	for _, j := range n.Join {
		out.Join = append(out.Join, j.Name)
	}
	return out
}

// Network is what a sandbox may reach and the networks that it is in.
func (s *Service) Network(ctx context.Context, who auth.Identity, id string) (api.Network, error) {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return api.Network{}, err
	}
	return externalNetwork(row.Network), nil
}

// SetNetwork replaces what a sandbox may reach and its networks. It holds when
// the call returns, and cuts connections that are no longer allowed. A sandbox
// that is asleep stays so. The row is written first: should the process die
// before the host has followed, the reconciliation makes it follow.
func (s *Service) SetNetwork(ctx context.Context, who auth.Identity, id string, n api.Network) (api.Network, error) {
	want, err := s.networkOf(ctx, who.Org, &n)
	if err != nil {
		return api.Network{}, err
	}
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Network{}, err
	}
	defer release()
	if !alive(row.Status) {
		return api.Network{}, notAlive(&row)
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	before := row.Network
	if err := s.writeNetwork(ctx, &row, want); err != nil {
		return api.Network{}, err
	}
	if err := s.host.SetNetwork(ctx, id, hostNetwork(want)); err != nil {
		return api.Network{}, errors.Join(err, s.writeNetwork(ctx, &row, before))
	}
	s.emit(&row, EventNetwork, nil)
	return externalNetwork(row.Network), nil
}

func (s *Service) writeNetwork(ctx context.Context, row *store.Sandbox, n store.Network) error {
	row.Network, row.UpdatedAt = n, now()
	return s.taken(row, s.store.SetSandboxNetwork(ctx, row))
}

// taken gives a name its error that another has taken at the same moment.
func (s *Service) taken(row *store.Sandbox, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return notFound(row.ID)
	case errors.Is(err, store.ErrConflict) && row.Network.Name != "":
		return api.Wrap(api.CodeNetworkName, err, "one of its networks has a member %s", row.Network.Name)
	}
	return err
}

// NetworkLog is what a sandbox has contacted: the newest lines after since.
func (s *Service) NetworkLog(ctx context.Context, who auth.Identity, id string, since int64, limit int) (api.ConnectionLog, error) {
	if limit == 0 {
		limit = defaultConnections
	}
	if limit < 0 || limit > maxConnections {
		return api.ConnectionLog{}, invalid("limit", "limit must be between 1 and %d", maxConnections)
	}
	if _, err := s.find(ctx, who, id); err != nil {
		return api.ConnectionLog{}, err
	}
	return s.host.NetworkLog(ctx, id, since, limit)
}

// CreateNetwork makes a network that sandboxes of the caller's may join.
func (s *Service) CreateNetwork(ctx context.Context, who auth.Identity, req api.CreateNetwork) (api.NetworkGroup, error) {
	if !networkName().MatchString(req.Name) {
		return api.NetworkGroup{}, invalid("name", "name must be 1 to 40 of a-z, 0-9 and - within")
	}
	g := store.NetworkGroup{ID: api.NewID(), Org: who.Org, Name: req.Name, CreatedAt: now()}
	if err := s.store.CreateNetwork(ctx, &g, s.limits.NetworksPerOrg); err != nil {
		if errors.Is(err, store.ErrConflict) {
			return api.NetworkGroup{}, api.Wrap(api.CodeNetworkExists, err, "there is a network %s", req.Name).With("network", req.Name)
		}
		return api.NetworkGroup{}, err
	}
	return externalGroup(g), nil
}

// Networks lists the networks of the caller.
func (s *Service) Networks(ctx context.Context, who auth.Identity) (api.NetworkGroupList, error) {
	groups, err := s.store.Networks(ctx, who.Org, "")
	out := api.NetworkGroupList{Networks: make([]api.NetworkGroup, len(groups))}
	for i, g := range groups {
		out.Networks[i] = externalGroup(g)
	}
	return out, err
}

// GetNetwork finds a network by name.
func (s *Service) GetNetwork(ctx context.Context, who auth.Identity, name string) (api.NetworkGroup, error) {
	if !networkName().MatchString(name) {
		return api.NetworkGroup{}, noNetwork(name)
	}
	groups, err := s.store.Networks(ctx, who.Org, name)
	if err != nil {
		return api.NetworkGroup{}, err
	}
	if len(groups) == 0 {
		return api.NetworkGroup{}, noNetwork(name)
	}
	return externalGroup(groups[0]), nil
}

// DeleteNetwork removes a network that has no members.
func (s *Service) DeleteNetwork(ctx context.Context, who auth.Identity, name string) error {
	err := s.store.DeleteNetwork(ctx, who.Org, name)
	if errors.Is(err, store.ErrNotFound) {
		return noNetwork(name)
	}
	return err
}

func externalGroup(g store.NetworkGroup) api.NetworkGroup {
	if g.Members == nil {
		g.Members = []api.NetworkMember{}
	}
	return api.NetworkGroup{Name: g.Name, CreatedAt: g.CreatedAt, Members: g.Members}
}

func noNetwork(name string) error {
	return api.Errorf(api.CodeNetworkNotFound, "there is no network %.40q", name)
}
