package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Lineage is where one sandbox came from. It outlives the sandbox.
type Lineage struct {
	SandboxID  string
	RootID     string // oldest ancestor
	ParentID   string // empty for a root
	TreeID     string
	SnapshotID string // that it was created from
	Template   string
	Promoted   bool
	CreatedAt  time.Time
	EndedAt    time.Time  // zero: it is there
	Status     api.Status // of the sandbox; empty when it is gone
}

// maxLineage bounds what is read of one tree, the newest first.
const maxLineage = 10000

// insertLineage notes where a sandbox came from. The lineage of its parent, who
// lives, is there.
func insertLineage(ctx context.Context, tx *sql.Tx, b *Sandbox) error {
	root := b.ID
	if b.ParentID != "" {
		err := tx.QueryRowContext(ctx, `SELECT root_id FROM lineage WHERE sandbox_id = $1`, b.ParentID).Scan(&root)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO lineage
		(sandbox_id, org, root_id, parent_id, tree_id, snapshot_id, template, promoted, created_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, 0)`,
		b.ID, b.Org, root, b.ParentID, b.TreeID, b.SnapshotID, b.Template, micros(b.CreatedAt))
	return err
}

// LineageOf gives all that descends from the oldest ancestor of a sandbox of an
// org, in the order of creation: the newest 10,000. ErrNotFound means that
// nothing is known of it.
func (s *Store) LineageOf(ctx context.Context, org, sandboxID string) ([]Lineage, error) {
	const op = "lineage"
	rows, err := s.read.QueryContext(ctx, `SELECT l.sandbox_id, l.root_id, l.parent_id, l.tree_id, l.snapshot_id, l.template, l.promoted,
		l.created_at, l.ended_at, COALESCE(b.status, '') FROM lineage l LEFT JOIN sandboxes b ON b.id = l.sandbox_id
		WHERE l.org = $1 AND l.root_id = (SELECT root_id FROM lineage WHERE sandbox_id = $2 AND org = $1)
		ORDER BY l.created_at DESC, l.sandbox_id LIMIT $3`, org, sandboxID, maxLineage)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	var out []Lineage
	for rows.Next() {
		var l Lineage
		var promoted, created, ended int64
		if err := rows.Scan(&l.SandboxID, &l.RootID, &l.ParentID, &l.TreeID, &l.SnapshotID, &l.Template, &promoted,
			&created, &ended, &l.Status); err != nil {
			return nil, s.fail(op, err)
		}
		l.Promoted, l.CreatedAt, l.EndedAt = promoted != 0, fromMicros(created), fromMicros(ended)
		out = append(out, l)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail(op, err)
	}
	if len(out) == 0 {
		return nil, s.fail(op, sql.ErrNoRows)
	}
	slices.Reverse(out)
	return out, nil
}

// Promote marks one sandbox of a tree as the one that was chosen, and no other.
func (s *Store) Promote(ctx context.Context, org, treeID, sandboxID string) error {
	return s.execOne(ctx, "promote", `UPDATE lineage SET promoted = CASE WHEN sandbox_id = $3 THEN 1 ELSE 0 END
		WHERE org = $1 AND tree_id = $2 AND tree_id <> ''`, org, treeID, sandboxID)
}

// PruneLineage removes what ended before a time and has no descendant left: the
// ancestors of a living sandbox stay.
func (s *Store) PruneLineage(ctx context.Context, before time.Time) (pruned int64, err error) {
	for {
		// One generation at a time, the youngest first.
		n, err := s.exec(ctx, "prune lineage", `DELETE FROM lineage WHERE ended_at > 0 AND ended_at < $1 AND NOT EXISTS
			(SELECT 1 FROM lineage c WHERE c.parent_id = lineage.sandbox_id AND c.parent_id <> '')`, micros(before))
		if pruned += n; err != nil || n == 0 {
			return pruned, err
		}
	}
}
