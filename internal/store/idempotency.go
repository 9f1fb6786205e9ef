package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Idempotency makes creates with one key one create.
type Idempotency struct {
	Key     string // chosen by the client; unique in its org
	Request string // digest of what was asked for
}

// KeyTaken is the error of a create whose key another create has used for a
// sandbox that exists.
type KeyTaken struct {
	SandboxID string
	Request   string
}

func (e *KeyTaken) Error() string {
	return fmt.Sprintf("store: the idempotency key has been used for sandbox %s", e.SandboxID)
}

// claimKey notes that a row is what its key stands for. A key whose sandbox is
// gone, for example because its create failed, is free again.
func claimKey(ctx context.Context, tx *sql.Tx, b *Sandbox) error {
	if b.Idempotency.Key == "" {
		return nil
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO idempotency (org, key, request, sandbox_id, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (org, key) DO UPDATE SET request = excluded.request, sandbox_id = excluded.sandbox_id, created_at = excluded.created_at
		WHERE NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = idempotency.sandbox_id)`,
		b.Org, b.Idempotency.Key, b.Idempotency.Request, b.ID, micros(b.CreatedAt))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	taken := &KeyTaken{}
	if err := tx.QueryRowContext(ctx, `SELECT sandbox_id, request FROM idempotency WHERE org = $1 AND key = $2`,
		b.Org, b.Idempotency.Key).Scan(&taken.SandboxID, &taken.Request); err != nil {
		return err
	}
	return taken
}

// PruneIdempotency forgets keys that were first used before a time.
func (s *Store) PruneIdempotency(ctx context.Context, before time.Time) (int64, error) {
	return s.exec(ctx, "prune idempotency keys", `DELETE FROM idempotency WHERE created_at < $1`, micros(before))
}
