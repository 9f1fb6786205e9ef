package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Sandbox is the row of one sandbox.
type Sandbox struct {
	ID         string
	Org        string
	KeyPrefix  string // of the key that made it
	Template   string
	Driver     string
	Status     api.Status
	Host       string
	Spec       Spec
	Metadata   map[string]string
	Token      string // access token of its guest daemon
	GuestIP    string
	Boot       Boot
	Persistent bool
	TTLSeconds int
	ExpiresAt  time.Time // zero: never
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Error      *api.Error

	ParentID    string               // sandbox it was forked from
	TreeID      string               // fork it came from
	SnapshotID  string               // snapshot or checkpoint that it goes on from
	Idle        *api.IdlePolicy      // nil: never goes to sleep by itself
	Checkpoints api.CheckpointPolicy // which of its checkpoints are kept
	Network     Network              // written by CreateSandboxes and SetSandboxNetwork only

	// Idempotency is written with a new row and not read back.
	Idempotency Idempotency
}

// Spec is the size of a sandbox.
type Spec struct {
	CPU      float64 `json:"cpu,omitempty"`
	MemoryMB int     `json:"memory_mb,omitempty"`
	DiskMB   int     `json:"disk_mb,omitempty"`
}

// Boot is how a sandbox came up.
type Boot struct {
	Mode  api.BootMode `json:"mode,omitempty"`
	MS    float64      `json:"ms,omitempty"`
	Steps []api.Step   `json:"steps,omitempty"`
}

const sandboxColumns = `id, org, key_prefix, template, driver, status, host, spec, metadata, token, guest_ip, boot,
	persistent, ttl_seconds, expires_at, created_at, updated_at, error, parent_id, tree_id, snapshot_id, idle, checkpoints, network`

func scanSandbox(row interface{ Scan(...any) error }) (Sandbox, error) {
	var b Sandbox
	var spec, metadata, boot, failure, idle, checkpoints, network string
	var persistent, expires, created, updated int64
	if err := row.Scan(&b.ID, &b.Org, &b.KeyPrefix, &b.Template, &b.Driver, &b.Status, &b.Host, &spec, &metadata, &b.Token, &b.GuestIP, &boot,
		&persistent, &b.TTLSeconds, &expires, &created, &updated, &failure,
		&b.ParentID, &b.TreeID, &b.SnapshotID, &idle, &checkpoints, &network); err != nil {
		return b, err
	}
	b.Persistent = persistent != 0
	b.ExpiresAt, b.CreatedAt, b.UpdatedAt = fromMicros(expires), fromMicros(created), fromMicros(updated)
	if err := fromJSON([]column{{spec, &b.Spec}, {metadata, &b.Metadata}, {boot, &b.Boot}, {failure, &b.Error},
		{idle, &b.Idle}, {checkpoints, &b.Checkpoints}, {network, &b.Network}}); err != nil {
		return b, fmt.Errorf("row of sandbox %s: %w", b.ID, err)
	}
	return b, nil
}

// column is the text of a structure and where it goes.
type column struct {
	text string
	into any
}

func fromJSON(columns []column) error {
	for _, c := range columns {
		if c.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(c.text), c.into); err != nil {
			return err
		}
	}
	return nil
}

// toJSON is a value of ours as it is stored; what is nil or empty is "".
func toJSON(v any) (string, error) {
	switch v := v.(type) {
	case map[string]string:
		if len(v) == 0 {
			return "", nil
		}
	case *api.Error:
		if v == nil {
			return "", nil
		}
	case *api.IdlePolicy:
		if v == nil {
			return "", nil
		}
	case api.CheckpointPolicy:
		if v == (api.CheckpointPolicy{}) {
			return "", nil
		}
	case Network:
		if v.empty() {
			return "", nil
		}
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// label is the digest by which sandboxes are found by one of their metadata.
func label(org, key, value string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%s", len(org), org, len(key), key, value))
	return hex.EncodeToString(sum[:16])
}

// texts are the structures of a row as they are stored.
type texts struct{ spec, metadata, boot, failure, idle, checkpoints, network string }

func (b *Sandbox) texts() (t texts, err error) {
	for _, c := range []struct {
		value any
		into  *string
	}{{b.Spec, &t.spec}, {b.Metadata, &t.metadata}, {b.Boot, &t.boot}, {b.Error, &t.failure}, {b.Idle, &t.idle}, {b.Checkpoints, &t.checkpoints}, {b.Network, &t.network}} {
		if *c.into, err = toJSON(c.value); err != nil {
			return t, err
		}
	}
	return t, nil
}

// CreateSandbox adds a row as CreateSandboxes does.
func (s *Store) CreateSandbox(ctx context.Context, b *Sandbox, quota int) error {
	return s.CreateSandboxes(ctx, []*Sandbox{b}, quota)
}

// CreateSandboxes adds rows of one org with their lineage, all or none. Were
// there then more than quota sandboxes of the org that have not failed, none is
// added, which gives quota.sandboxes_exceeded. A row whose idempotency key stands
// for another sandbox gives *KeyTaken.
func (s *Store) CreateSandboxes(ctx context.Context, rows []*Sandbox, quota int) error {
	return s.tx(ctx, "create sandbox", func(tx *sql.Tx) error {
		if err := s.checkQuota(ctx, tx, rows[0], len(rows), quota); err != nil {
			return err
		}
		for _, b := range rows {
			if err := claimKey(ctx, tx, b); err != nil {
				return err
			}
			if err := s.insertSandbox(ctx, tx, b); err != nil {
				return err
			}
			if err := insertLineage(ctx, tx, b); err != nil {
				return err
			}
			if err := inheritPreviews(ctx, tx, b); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) insertSandbox(ctx context.Context, tx *sql.Tx, b *Sandbox) error {
	t, err := b.texts()
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO sandboxes (`+sandboxColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, '', $18, $19, $20, $21, $22, $23)`,
		b.ID, b.Org, b.KeyPrefix, b.Template, b.Driver, string(b.Status), b.Host, t.spec, t.metadata, b.Token, b.GuestIP, t.boot,
		fromBool(b.Persistent), b.TTLSeconds, micros(b.ExpiresAt), micros(b.CreatedAt), micros(b.UpdatedAt),
		b.ParentID, b.TreeID, b.SnapshotID, t.idle, t.checkpoints, t.network); err != nil {
		return err
	}
	if err := s.joinNetworks(ctx, tx, b); err != nil {
		return err
	}
	for k, v := range b.Metadata {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sandbox_metadata (label, sandbox_id) VALUES ($1, $2)`, label(b.Org, k, v), b.ID); err != nil {
			return err
		}
	}
	return nil
}

// checkQuota refuses more sandboxes than the org of b may have. On PostgreSQL the row of the org makes
// concurrent creates of one org take turns, so that the count holds until the
// commit; a SQLite transaction has the database to itself anyway.
func (s *Store) checkQuota(ctx context.Context, tx *sql.Tx, b *Sandbox, more, quota int) error {
	if s.engine == enginePostgres {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orgs (org, updated_at) VALUES ($1, $2)
			ON CONFLICT (org) DO UPDATE SET updated_at = excluded.updated_at`, b.Org, micros(b.CreatedAt)); err != nil {
			return err
		}
	}
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sandboxes WHERE org = $1 AND status <> 'failed'`, b.Org).Scan(&n); err != nil {
		return err
	}
	if n+more > quota {
		return api.Errorf(api.CodeQuotaSandboxes, "there are %d sandboxes, %d more were asked for and the quota is %d", n, more, quota).
			With("quota", quota).With("sandboxes", n)
	}
	return nil
}

// UpdateSandbox writes what may change in a row: all but its identity, org,
// metadata, token, ancestry and time of creation. ErrNotFound means it is gone.
func (s *Store) UpdateSandbox(ctx context.Context, b *Sandbox) error {
	n, err := updateSandbox(ctx, s.write, b)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return s.fail("update sandbox", err)
}

// UpdateSandboxes writes rows as UpdateSandbox does, all or none.
func (s *Store) UpdateSandboxes(ctx context.Context, rows []*Sandbox) error {
	return s.tx(ctx, "update sandboxes", func(tx *sql.Tx) error {
		for _, b := range rows {
			n, err := updateSandbox(ctx, tx, b)
			if err == nil && n == 0 {
				err = ErrNotFound
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// executor is a database or a transaction.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func updateSandbox(ctx context.Context, on executor, b *Sandbox) (int64, error) {
	t, err := b.texts()
	if err != nil {
		return 0, err
	}
	res, err := on.ExecContext(ctx, `UPDATE sandboxes SET driver = $2, status = $3, host = $4, spec = $5, guest_ip = $6, boot = $7,
		persistent = $8, ttl_seconds = $9, expires_at = $10, updated_at = $11, error = $12, snapshot_id = $13, idle = $14,
		checkpoints = $15 WHERE id = $1`,
		b.ID, b.Driver, string(b.Status), b.Host, t.spec, b.GuestIP, t.boot,
		fromBool(b.Persistent), b.TTLSeconds, micros(b.ExpiresAt), micros(b.UpdatedAt), t.failure, b.SnapshotID, t.idle, t.checkpoints)
	if err != nil {
		return 0, err
	}
	if b.Status == api.StatusFailed { // its name is free for who takes its place
		if _, err := on.ExecContext(ctx, `DELETE FROM network_members WHERE sandbox_id = $1`, b.ID); err != nil {
			return 0, err
		}
	}
	return res.RowsAffected()
}

// DeleteSandbox removes a row and its labels; its lineage says when it ended. A
// row that is not there is nil.
func (s *Store) DeleteSandbox(ctx context.Context, id string, ended time.Time) error {
	return s.tx(ctx, "delete sandbox", func(tx *sql.Tx) error {
		if err := deleteSandbox(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE lineage SET ended_at = $2 WHERE sandbox_id = $1 AND ended_at = 0`, id, micros(ended))
		return err
	})
}

// ForgetSandboxes removes rows as if they had never been, for sandboxes that
// did not come to life.
func (s *Store) ForgetSandboxes(ctx context.Context, ids []string) error {
	return s.tx(ctx, "forget sandboxes", func(tx *sql.Tx) error {
		for _, id := range ids {
			if err := deleteSandbox(ctx, tx, id); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM lineage WHERE sandbox_id = $1`, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func deleteSandbox(ctx context.Context, tx *sql.Tx, id string) error {
	if err := deletePreviews(ctx, tx, id); err != nil {
		return err
	}
	if err := leaveNetworks(ctx, tx, id); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM sandbox_metadata WHERE sandbox_id = $1`, id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM sandboxes WHERE id = $1`, id)
	return err
}

// GetSandbox finds a row of any org, or gives ErrNotFound.
func (s *Store) GetSandbox(ctx context.Context, id string) (Sandbox, error) {
	b, err := scanSandbox(s.read.QueryRowContext(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE id = $1`, id))
	return b, s.fail("get sandbox", err)
}
