package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// networkControl is what the API asks of the rules about networks.
type networkControl interface {
	Network(ctx context.Context, who auth.Identity, id string) (api.Network, error)
	SetNetwork(ctx context.Context, who auth.Identity, id string, n api.Network) (api.Network, error)
	NetworkLog(ctx context.Context, who auth.Identity, id string, since int64, limit int) (api.ConnectionLog, error)
	CreateNetwork(ctx context.Context, who auth.Identity, req api.CreateNetwork) (api.NetworkGroup, error)
	Networks(ctx context.Context, who auth.Identity) (api.NetworkGroupList, error)
	GetNetwork(ctx context.Context, who auth.Identity, name string) (api.NetworkGroup, error)
	DeleteNetwork(ctx context.Context, who auth.Identity, name string) error
}

// networkRoutes are the operations on what sandboxes may reach.
func (a *API) networkRoutes() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	const networks, network = "/v1/networks", "/v1/networks/{network}"
	return []route{
		{get, sandbox + "/network", anyKey, "getSandboxNetwork", "network", "What a sandbox may reach", typed(a.getSandboxNetwork), nil},
		{put, sandbox + "/network", anyKey, "setSandboxNetwork", "network", "Change what a sandbox may reach", typed(a.setSandboxNetwork), docSetNetwork},
		{get, sandbox + "/network/log", anyKey, "getNetworkLog", "network", "What a sandbox has contacted", typed(a.getNetworkLog), docNetworkLog},
		{post, networks, anyKey, "createNetwork", "network", "Create a network that links sandboxes", typed(a.createNetwork), docCreateNetwork},
		{get, networks, anyKey, "listNetworks", "network", "List networks", typed(a.listNetworks), nil},
		{get, network, anyKey, "getNetwork", "network", "Get a network", typed(a.getNetwork), nil},
		{del, network, anyKey, "deleteNetwork", "network", "Delete a network", typed(a.deleteNetwork), docDeleteNetwork},
	}
}

func docSetNetwork(op *huma.Operation) {
	op.Description = "Replaces the rules and the networks. It holds when the answer comes: open connections that are no longer allowed are cut. " +
		"A sandbox that is asleep stays so, and wakes under the new rules."
}

func docNetworkLog(op *huma.Operation) {
	op.Description = "Every connection when it ended, and every refusal; repeated refusals of one target within a minute are one line. " +
		"The log is bounded: the oldest lines go first. Refusals are events too (network.denied)."
}

func docCreateNetwork(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "Sandboxes join it at create or later (network.join), reach each other at any port, and find each other as <name>.internal and <id>.internal."
}

func docDeleteNetwork(op *huma.Operation) {
	op.Description = "A network that has members is refused with network.in_use."
}

type networkBody struct{ Body api.Network }

func (a *API) getSandboxNetwork(ctx context.Context, in *SandboxPath) (*networkBody, error) {
	n, err := a.Control.Network(ctx, who(ctx), in.ID)
	return &networkBody{n}, err
}

type setNetworkInput struct {
	SandboxPath
	Body api.Network
}

func (a *API) setSandboxNetwork(ctx context.Context, in *setNetworkInput) (*networkBody, error) {
	n, err := a.Control.SetNetwork(ctx, who(ctx), in.ID, in.Body)
	return &networkBody{n}, err
}

type networkLogInput struct {
	SandboxPath
	Since int64 `query:"since" minimum:"0" doc:"Only lines with greater ids"`
	Limit int   `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"At most so many of the latest"`
}

type networkLogOutput struct{ Body api.ConnectionLog }

func (a *API) getNetworkLog(ctx context.Context, in *networkLogInput) (*networkLogOutput, error) {
	log, err := a.Control.NetworkLog(ctx, who(ctx), in.ID, in.Since, in.Limit)
	return &networkLogOutput{log}, err
}

type groupOutput struct{ Body api.NetworkGroup }

type createNetworkInput struct{ Body api.CreateNetwork }

func (a *API) createNetwork(ctx context.Context, in *createNetworkInput) (*groupOutput, error) {
	g, err := a.Control.CreateNetwork(ctx, who(ctx), in.Body)
	return &groupOutput{g}, err
}

type groupsOutput struct{ Body api.NetworkGroupList }

func (a *API) listNetworks(ctx context.Context, _ *struct{}) (*groupsOutput, error) {
	list, err := a.Control.Networks(ctx, who(ctx))
	return &groupsOutput{list}, err
}

// NetworkPath names a network.
type NetworkPath struct {
	Network string `path:"network" maxLength:"100" doc:"Name of the network" example:"backend"`
}

func (a *API) getNetwork(ctx context.Context, in *NetworkPath) (*groupOutput, error) {
	g, err := a.Control.GetNetwork(ctx, who(ctx), in.Network)
	return &groupOutput{g}, err
}

func (a *API) deleteNetwork(ctx context.Context, in *NetworkPath) (*struct{}, error) {
	return nil, a.Control.DeleteNetwork(ctx, who(ctx), in.Network)
}
