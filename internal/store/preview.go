package store

import (
	"context"
	"database/sql"

	"github.com/pandastack/pandastack/api"
)

// SetPreview keeps who may open the preview of a sandbox's port. ErrNotFound
// means that the sandbox is gone: its previews went with it, and none may come
// after.
func (s *Store) SetPreview(ctx context.Context, sandboxID string, port int, v api.Visibility) error {
	return s.execOne(ctx, "set preview", `INSERT INTO previews (sandbox_id, port, visibility)
		SELECT id, CAST($2 AS BIGINT), CAST($3 AS TEXT) FROM sandboxes WHERE id = $1
		ON CONFLICT (sandbox_id, port) DO UPDATE SET visibility = excluded.visibility`, sandboxID, port, string(v))
}

// Previews gives what was set of a sandbox's ports.
func (s *Store) Previews(ctx context.Context, sandboxID string) (_ map[int]api.Visibility, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT port, visibility FROM previews WHERE sandbox_id = $1`, sandboxID)
	if err != nil {
		return nil, s.fail("previews", err)
	}
	defer rows.Close()
	out := map[int]api.Visibility{}
	for rows.Next() {
		var port int
		var v api.Visibility
		if err := rows.Scan(&port, &v); err != nil {
			return nil, s.fail("previews", err)
		}
		out[port] = v
	}
	return out, s.fail("previews", rows.Err())
}

// inheritPreviews gives a child what was set of its parent's ports.
func inheritPreviews(ctx context.Context, tx *sql.Tx, b *Sandbox) error {
	if b.ParentID == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO previews (sandbox_id, port, visibility)
		SELECT CAST($1 AS TEXT), port, visibility FROM previews WHERE sandbox_id = $2`, b.ID, b.ParentID)
	return err
}

func deletePreviews(ctx context.Context, tx *sql.Tx, sandboxID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM previews WHERE sandbox_id = $1`, sandboxID)
	return err
}
