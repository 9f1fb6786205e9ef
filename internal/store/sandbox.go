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
	persistent, ttl_seconds, expires_at, created_at, updated_at, error`

func scanSandbox(row interface{ Scan(...any) error }) (Sandbox, error) {
	var b Sandbox
	var spec, metadata, boot, failure string
	var persistent, expires, created, updated int64
	if err := row.Scan(&b.ID, &b.Org, &b.KeyPrefix, &b.Template, &b.Driver, &b.Status, &b.Host, &spec, &metadata, &b.Token, &b.GuestIP, &boot,
		&persistent, &b.TTLSeconds, &expires, &created, &updated, &failure); err != nil {
		return b, err
	}
	b.Persistent = persistent != 0
	b.ExpiresAt, b.CreatedAt, b.UpdatedAt = fromMicros(expires), fromMicros(created), fromMicros(updated)
	for _, column := range []struct {
		text string
		into any
	}{{spec, &b.Spec}, {metadata, &b.Metadata}, {boot, &b.Boot}, {failure, &b.Error}} {
		if column.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(column.text), column.into); err != nil {
			return b, fmt.Errorf("row of sandbox %s: %w", b.ID, err)
		}
	}
	return b, nil
}

// toJSON is a value of ours as it is stored; nil and empty maps are "".
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
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// label is the digest by which sandboxes are found by one of their metadata.
func label(org, key, value string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%s", len(org), org, len(key), key, value))
	return hex.EncodeToString(sum[:16])
}

// CreateSandbox adds a row unless its org then had more than quota sandboxes
// that have not failed, which gives quota.sandboxes_exceeded.
func (s *Store) CreateSandbox(ctx context.Context, b *Sandbox, quota int) error {
	const op = "create sandbox"
	spec, err1 := toJSON(b.Spec)
	metadata, err2 := toJSON(b.Metadata)
	boot, err3 := toJSON(b.Boot)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return s.fail(op, err)
		}
	}
	return s.tx(ctx, op, func(tx *sql.Tx) error {
		if err := s.checkQuota(ctx, tx, b, quota); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO sandboxes (`+sandboxColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, '')`,
			b.ID, b.Org, b.KeyPrefix, b.Template, b.Driver, string(b.Status), b.Host, spec, metadata, b.Token, b.GuestIP, boot,
			fromBool(b.Persistent), b.TTLSeconds, micros(b.ExpiresAt), micros(b.CreatedAt), micros(b.UpdatedAt)); err != nil {
			return err
		}
		for k, v := range b.Metadata {
			if _, err := tx.ExecContext(ctx, `INSERT INTO sandbox_metadata (label, sandbox_id) VALUES ($1, $2)`, label(b.Org, k, v), b.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkQuota counts the org's sandboxes. On PostgreSQL the row of the org makes
// concurrent creates of one org take turns, so that the count holds until the
// commit; a SQLite transaction has the database to itself anyway.
func (s *Store) checkQuota(ctx context.Context, tx *sql.Tx, b *Sandbox, quota int) error {
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
	if n >= quota {
		return api.Errorf(api.CodeQuotaSandboxes, "there are %d sandboxes and the quota is %d", n, quota).
			With("quota", quota).With("sandboxes", n)
	}
	return nil
}

// UpdateSandbox writes what may change in a row: all but its identity, org,
// metadata, token and time of creation. ErrNotFound means it is gone.
func (s *Store) UpdateSandbox(ctx context.Context, b *Sandbox) error {
	const op = "update sandbox"
	spec, err1 := toJSON(b.Spec)
	boot, err2 := toJSON(b.Boot)
	failure, err3 := toJSON(b.Error)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return s.fail(op, err)
		}
	}
	return s.execOne(ctx, op, `UPDATE sandboxes SET driver = $2, status = $3, host = $4, spec = $5, guest_ip = $6, boot = $7,
		persistent = $8, ttl_seconds = $9, expires_at = $10, updated_at = $11, error = $12 WHERE id = $1`,
		b.ID, b.Driver, string(b.Status), b.Host, spec, b.GuestIP, boot,
		fromBool(b.Persistent), b.TTLSeconds, micros(b.ExpiresAt), micros(b.UpdatedAt), failure)
}

// DeleteSandbox removes a row and its labels. A row that is not there is nil.
func (s *Store) DeleteSandbox(ctx context.Context, id string) error {
	return s.tx(ctx, "delete sandbox", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM sandbox_metadata WHERE sandbox_id = $1`, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM sandboxes WHERE id = $1`, id)
		return err
	})
}

// GetSandbox finds a row of any org, or gives ErrNotFound.
func (s *Store) GetSandbox(ctx context.Context, id string) (Sandbox, error) {
	b, err := scanSandbox(s.read.QueryRowContext(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE id = $1`, id))
	return b, s.fail("get sandbox", err)
}
