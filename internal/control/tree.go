package control

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// Tree gives the lineage of a sandbox: all that was forked, directly or not,
// from its oldest ancestor, parents before children. A sandbox that is gone can
// be asked for while it is in a lineage. One created from a snapshot begins a
// lineage of its own: a snapshot that many are made from is not their parent.
func (s *Service) Tree(ctx context.Context, who auth.Identity, id string) (api.Tree, error) {
	if !api.ValidID(id) {
		return api.Tree{}, notFound(id)
	}
	rows, err := s.store.LineageOf(ctx, who.Org, id)
	if errors.Is(err, store.ErrNotFound) {
		return api.Tree{}, notFound(id)
	}
	if err != nil {
		return api.Tree{}, err
	}
	tree := api.Tree{RootID: rows[0].RootID, Nodes: make([]api.TreeNode, 0, len(rows))}
	for _, l := range parentsFirst(rows) {
		node := api.TreeNode{
			ID: l.SandboxID, ParentID: l.ParentID, TreeID: l.TreeID, SnapshotID: l.SnapshotID, Template: l.Template,
			Status: l.Status, Promoted: l.Promoted, CreatedAt: l.CreatedAt,
		}
		if l.Status == "" {
			node.Status = api.StatusDeleted
		}
		if !l.EndedAt.IsZero() {
			node.EndedAt = &l.EndedAt
		}
		tree.Nodes = append(tree.Nodes, node)
	}
	return tree, nil
}

// parentsFirst orders a lineage by generation, and within one by creation. The
// times of creation alone would not do: a clock may have been set back.
func parentsFirst(rows []store.Lineage) []store.Lineage {
	there := make(map[string]bool, len(rows))
	children := make(map[string][]store.Lineage)
	for _, l := range rows {
		there[l.SandboxID] = true
	}
	var out []store.Lineage
	for _, l := range rows {
		if there[l.ParentID] {
			children[l.ParentID] = append(children[l.ParentID], l)
		} else {
			out = append(out, l)
		}
	}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i].SandboxID]...)
	}
	return out
}
