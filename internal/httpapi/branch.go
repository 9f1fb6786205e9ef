package httpapi

import (
	"context"

	"github.com/pandastack/pandastack/api"
)

type forkInput struct {
	SandboxPath
	CrossHost bool `query:"cross_host" doc:"Children may run on another host; they are placed where there is room in any case"`
	Body      *api.Fork
}

// forkOutput answers a child's record, or the tree of several.
type forkOutput struct {
	Location string `header:"Location" doc:"Path of the child, if it is one"`
	Body     any
}

func (a *API) fork(ctx context.Context, in *forkInput) (*forkOutput, error) {
	tree, err := a.branch(ctx, in)
	if err != nil {
		return nil, err
	}
	if in.Body != nil && in.Body.Count > 1 {
		return &forkOutput{Body: tree}, nil
	}
	child := tree.Children[0]
	return &forkOutput{sandboxes + "/" + child.ID, child}, nil
}

type forkTreeOutput struct{ Body api.ForkTree }

func (a *API) forkTree(ctx context.Context, in *forkInput) (*forkTreeOutput, error) {
	tree, err := a.branch(ctx, in)
	if err != nil {
		return nil, err
	}
	return &forkTreeOutput{tree}, nil
}

// branch makes the children and counts them as it does creates.
func (a *API) branch(ctx context.Context, in *forkInput) (api.ForkTree, error) {
	tree, err := a.Control.Fork(ctx, who(ctx), in.ID, orZero(in.Body))
	if err != nil {
		a.metrics.created(api.Sandbox{}, err)
		return api.ForkTree{}, err
	}
	for _, child := range tree.Children {
		a.metrics.created(child, nil)
	}
	return tree, nil
}

type promoteInput struct {
	SandboxPath
	Body *api.Promote
}

type promoteOutput struct{ Body api.Promoted }

func (a *API) promote(ctx context.Context, in *promoteInput) (*promoteOutput, error) {
	p, err := a.Control.Promote(ctx, who(ctx), in.ID, orZero(in.Body))
	if err != nil {
		return nil, err
	}
	if p.Deleted == nil {
		p.Deleted = []string{}
	}
	return &promoteOutput{p}, nil
}

type treeOutput struct{ Body api.Tree }

func (a *API) getTree(ctx context.Context, in *SandboxPath) (*treeOutput, error) {
	t, err := a.Control.Tree(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	if t.Nodes == nil {
		t.Nodes = []api.TreeNode{}
	}
	return &treeOutput{t}, nil
}

type checkpointInput struct {
	SandboxPath
	Body *api.Checkpoint
}

func (a *API) createCheckpoint(ctx context.Context, in *checkpointInput) (*takenOutput, error) {
	return a.taken(a.Control.Checkpoint(ctx, who(ctx), in.ID, orZero(in.Body)))
}

type timelineOutput struct{ Body api.Timeline }

func (a *API) listCheckpoints(ctx context.Context, in *SandboxPath) (*timelineOutput, error) {
	t, err := a.Control.Timeline(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	if t.Checkpoints == nil {
		t.Checkpoints = []api.Snapshot{}
	}
	return &timelineOutput{t}, nil
}

type checkpointPath struct {
	SandboxPath
	Checkpoint string `path:"checkpoint" maxLength:"128" doc:"Id or name of a checkpoint of this sandbox"`
}

// deleteCheckpoint looks the name up in the sandbox's own timeline: names of
// checkpoints are unique only there.
func (a *API) deleteCheckpoint(ctx context.Context, in *checkpointPath) (*nothing, error) {
	t, err := a.Control.Timeline(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	for _, c := range t.Checkpoints {
		if c.ID == in.Checkpoint || c.Name == in.Checkpoint {
			return nil, a.Control.DeleteSnapshot(ctx, who(ctx), c.ID)
		}
	}
	return nil, api.Errorf(api.CodeSnapshotNotFound, "sandbox %s has no checkpoint %s", in.ID, in.Checkpoint).With("sandbox_id", in.ID)
}

type restoreInput struct {
	SandboxPath
	Body *api.Restore
}

func (a *API) restore(ctx context.Context, in *restoreInput) (*sandboxOutput, error) {
	s, err := a.Control.Restore(ctx, who(ctx), in.ID, orZero(in.Body))
	if err != nil {
		return nil, err
	}
	a.metrics.started(s)
	return &sandboxOutput{s}, nil
}

func (a *API) hibernate(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return sandboxAnswer(a.Control.Hibernate(ctx, who(ctx), in.ID))
}

func (a *API) wake(ctx context.Context, in *SandboxPath) (*sandboxOutput, error) {
	return sandboxAnswer(a.Control.Wake(ctx, who(ctx), in.ID))
}
