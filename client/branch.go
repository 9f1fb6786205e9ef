package client

import (
	"context"
	"iter"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

// Snapshot keeps the sandbox as it is now, memory and processes included unless
// in.Memory is false, while it goes on running (snapshot.exists when the name is
// taken). The zero value gives a snapshot without a name.
func (s *Sandbox) Snapshot(ctx context.Context, in api.CreateSnapshot) (api.Snapshot, error) {
	var out api.Snapshot
	err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("snapshots"), in: in}, &out)
	return out, err
}

// Snapshots gives the snapshots that were taken of the sandbox, newest first.
// Its checkpoints are not among them.
func (s *Sandbox) Snapshots(ctx context.Context) iter.Seq2[api.Snapshot, error] {
	return s.c.Snapshots.List(ctx, SnapshotListOptions{SandboxID: s.ID, Kind: api.KindSnapshot})
}

// Fork makes a child that goes on from where the sandbox is now, or from
// in.Checkpoint, with an identity of its own; the sandbox itself goes on. It
// makes one child whatever in.Count says.
func (s *Sandbox) Fork(ctx context.Context, in api.Fork) (*Sandbox, error) {
	in.Count = 1
	var rec api.Sandbox
	if err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("fork"), in: in}, &rec); err != nil {
		return nil, err
	}
	return s.c.Sandboxes.adopt(rec), nil
}

// ForkTree is children that were forked at once.
type ForkTree struct {
	ID       string // names the siblings, for Promote
	ParentID string
	Children []*Sandbox
}

// ForkTree makes n children as Fork does, all from one moment. It makes all of
// them or, with an error, none.
func (s *Sandbox) ForkTree(ctx context.Context, n int, in api.Fork) (*ForkTree, error) {
	if n < 1 {
		return nil, api.Errorf(api.CodeInvalidRequest, "a fork tree has at least one child, not %d", n).With("field", "count")
	}
	in.Count = n
	var out api.ForkTree
	if err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("fork-tree"), in: in}, &out); err != nil {
		return nil, err
	}
	tree := &ForkTree{ID: out.TreeID, ParentID: out.ParentID, Children: make([]*Sandbox, len(out.Children))}
	for i, rec := range out.Children {
		tree.Children[i] = s.c.Sandboxes.adopt(rec)
	}
	return tree, nil
}

// Promote marks the sandbox as the child of its tree to go on with, and with
// in.CleanupSiblings deletes the others.
func (s *Sandbox) Promote(ctx context.Context, in api.Promote) (api.Promoted, error) {
	var out api.Promoted
	if err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("promote"), in: in}, &out); err != nil {
		return api.Promoted{}, err
	}
	if out.Sandbox.ID != "" {
		s.Sandbox = out.Sandbox
	}
	return out, nil
}

// Tree gives the lineage of the sandbox: all that descends from its oldest
// ancestor, parents before children, also what is gone.
func (s *Sandbox) Tree(ctx context.Context) (api.Tree, error) {
	var out api.Tree
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("tree")}, &out)
	return out, err
}

// Checkpoint notes the sandbox as it is now on its timeline, for Restore. It is
// cheap enough to take one before every step of work. The name may be empty.
func (s *Sandbox) Checkpoint(ctx context.Context, name string) (api.Snapshot, error) {
	var out api.Snapshot
	err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("checkpoint"), in: api.Checkpoint{Name: name}}, &out)
	return out, err
}

// Checkpoints gives the timeline of the sandbox, oldest first.
func (s *Sandbox) Checkpoints(ctx context.Context) (api.Timeline, error) {
	var out api.Timeline
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("checkpoints")}, &out)
	return out, err
}

// DeleteCheckpoint removes a checkpoint, named by its id or name, from the
// timeline (snapshot.not_found).
func (s *Sandbox) DeleteCheckpoint(ctx context.Context, checkpoint string) error {
	return s.c.call(ctx, request{method: http.MethodDelete, path: s.path("checkpoints", checkpoint)}, nil)
}

// Restore takes the sandbox back to a checkpoint, named by its id or name, with
// the same id and address; empty is the newest. What happened since is lost
// unless a checkpoint has it (snapshot.not_found).
func (s *Sandbox) Restore(ctx context.Context, checkpoint string) error {
	return s.record(ctx, request{method: http.MethodPost, path: s.path("restore"), in: api.Restore{Checkpoint: checkpoint}})
}
