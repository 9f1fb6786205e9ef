package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

// Networks makes, finds and removes networks, which link sandboxes of one owner.
// Sandboxes join them with api.Network.Join.
type Networks struct{ c *Client }

// Create makes a network.
func (n *Networks) Create(ctx context.Context, name string) (*api.NetworkGroup, error) {
	var out api.NetworkGroup
	r := request{method: http.MethodPost, path: []string{"v1", "networks"}, in: api.CreateNetwork{Name: name}}
	if err := n.c.call(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// List gives every network by name, with its members.
func (n *Networks) List(ctx context.Context) ([]api.NetworkGroup, error) {
	var out api.NetworkGroupList
	err := n.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "networks"}}, &out)
	return out.Networks, err
}

// Get finds a network by name.
func (n *Networks) Get(ctx context.Context, name string) (*api.NetworkGroup, error) {
	var out api.NetworkGroup
	if err := n.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "networks", name}}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Delete removes a network that has no members.
func (n *Networks) Delete(ctx context.Context, name string) error {
	return n.c.call(ctx, request{method: http.MethodDelete, path: []string{"v1", "networks", name}}, nil)
}

// Network is what the sandbox may reach, and the networks that it is in.
func (s *Sandbox) Network(ctx context.Context) (*api.Network, error) {
	var out api.Network
	if err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("network")}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// SetNetwork replaces what the sandbox may reach and its networks, and cuts
// connections that are no longer allowed.
func (s *Sandbox) SetNetwork(ctx context.Context, network api.Network) (*api.Network, error) {
	var out api.Network
	if err := s.c.call(ctx, request{method: http.MethodPut, path: s.path("network"), in: network}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// NetworkLog reads what the sandbox has contacted: the latest lines, at most
// limit (0 lets the server choose), with ids above since.
func (s *Sandbox) NetworkLog(ctx context.Context, since int64, limit int) (*api.ConnectionLog, error) {
	q := url.Values{}
	if since > 0 {
		q.Set("since", strconv.FormatInt(since, 10))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var out api.ConnectionLog
	if err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("network", "log"), query: q}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
