package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// SnapshotStatus is how far a snapshot is.
type SnapshotStatus string

// A snapshot is creating until its host has it for good, and deleting until its
// host has let go of it. Only a ready one is there for its owner.
const (
	SnapshotCreating SnapshotStatus = "creating"
	SnapshotReady    SnapshotStatus = "ready"
	SnapshotDeleting SnapshotStatus = "deleting"
)

// Snapshot is the row of a snapshot or checkpoint. Names are unique among the
// snapshots of an org and among the checkpoints of a sandbox; any number have
// none.
type Snapshot struct {
	ID          string
	Org         string
	Name        string
	Kind        api.SnapshotKind
	SandboxID   string
	ParentID    string
	Memory      bool
	Template    string
	Driver      string
	Host        string
	Spec        Spec
	SizeBytes   int64
	StoredBytes int64
	PauseMS     float64
	Metadata    map[string]string
	Network     Network // of the sandbox when it was taken; what starts from it has its rules
	Status      SnapshotStatus
	ExpiresAt   time.Time // of a checkpoint, by its sandbox's policy; zero: never
	CreatedAt   time.Time
}

const snapshotColumns = `id, org, name, kind, sandbox_id, parent_id, memory, template, driver, host, spec, size_bytes, stored_bytes,
	pause_us, metadata, status, expires_at, created_at, network`

func scanSnapshot(row interface{ Scan(...any) error }) (Snapshot, error) {
	var n Snapshot
	var spec, metadata, network string
	var memory, pause, expires, created int64
	if err := row.Scan(&n.ID, &n.Org, &n.Name, &n.Kind, &n.SandboxID, &n.ParentID, &memory, &n.Template, &n.Driver, &n.Host, &spec,
		&n.SizeBytes, &n.StoredBytes, &pause, &metadata, &n.Status, &expires, &created, &network); err != nil {
		return n, err
	}
	n.Memory, n.PauseMS = memory != 0, float64(pause)/1000
	n.ExpiresAt, n.CreatedAt = fromMicros(expires), fromMicros(created)
	if err := fromJSON([]column{{spec, &n.Spec}, {metadata, &n.Metadata}, {network, &n.Network}}); err != nil {
		return n, fmt.Errorf("row of snapshot %s: %w", n.ID, err)
	}
	return n, nil
}

// CreateSnapshot adds a row. ErrConflict means that its name is taken.
func (s *Store) CreateSnapshot(ctx context.Context, n *Snapshot) error {
	const op = "create snapshot"
	spec, err := toJSON(n.Spec)
	if err != nil {
		return s.fail(op, err)
	}
	metadata, err := toJSON(n.Metadata)
	if err != nil {
		return s.fail(op, err)
	}
	network, err := toJSON(n.Network)
	if err != nil {
		return s.fail(op, err)
	}
	_, err = s.exec(ctx, op, `INSERT INTO snapshots (`+snapshotColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		n.ID, n.Org, n.Name, string(n.Kind), n.SandboxID, n.ParentID, fromBool(n.Memory), n.Template, n.Driver, n.Host, spec,
		n.SizeBytes, n.StoredBytes, int64(n.PauseMS*1000), metadata, string(n.Status), micros(n.ExpiresAt), micros(n.CreatedAt), network)
	return err
}

// UpdateSnapshot writes what a host says of a snapshot, and its status.
// ErrNotFound means the row is gone.
func (s *Store) UpdateSnapshot(ctx context.Context, n *Snapshot) error {
	return s.tx(ctx, "update snapshot", func(tx *sql.Tx) error { return updateSnapshot(ctx, tx, n) })
}

// UpdateCheckpoint is UpdateSnapshot for a checkpoint that its sandbox goes on
// from now on.
func (s *Store) UpdateCheckpoint(ctx context.Context, n *Snapshot) error {
	return s.tx(ctx, "update checkpoint", func(tx *sql.Tx) error {
		if err := updateSnapshot(ctx, tx, n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE sandboxes SET snapshot_id = $2 WHERE id = $1`, n.SandboxID, n.ID)
		return err
	})
}

func updateSnapshot(ctx context.Context, tx *sql.Tx, n *Snapshot) error {
	spec, err := toJSON(n.Spec)
	if err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, `UPDATE snapshots SET memory = $2, template = $3, driver = $4, host = $5, spec = $6, size_bytes = $7,
		stored_bytes = $8, pause_us = $9, status = $10, expires_at = $11 WHERE id = $1`,
		n.ID, fromBool(n.Memory), n.Template, n.Driver, n.Host, spec, n.SizeBytes, n.StoredBytes, int64(n.PauseMS*1000),
		string(n.Status), micros(n.ExpiresAt))
	if err != nil {
		return err
	}
	if met, err := res.RowsAffected(); err != nil || met == 0 {
		if err == nil {
			err = ErrNotFound
		}
		return err
	}
	return nil
}

// SetSnapshotStatus writes the status alone. ErrNotFound means the row is gone.
func (s *Store) SetSnapshotStatus(ctx context.Context, id string, status SnapshotStatus) error {
	return s.execOne(ctx, "set snapshot status", `UPDATE snapshots SET status = $2 WHERE id = $1`, id, string(status))
}

// DeleteSnapshot removes a row. A row that is not there is nil.
func (s *Store) DeleteSnapshot(ctx context.Context, id string) error {
	_, err := s.exec(ctx, "delete snapshot", `DELETE FROM snapshots WHERE id = $1`, id)
	return err
}

// GetSnapshot finds a row of any org, kind and status, or gives ErrNotFound.
func (s *Store) GetSnapshot(ctx context.Context, id string) (Snapshot, error) {
	return s.oneSnapshot(ctx, `id = $1`, id)
}

// SnapshotByName finds a snapshot of an org, of any status.
func (s *Store) SnapshotByName(ctx context.Context, org, name string) (Snapshot, error) {
	return s.oneSnapshot(ctx, `kind = 'snapshot' AND name <> '' AND org = $1 AND name = $2`, org, name)
}

// CheckpointByName finds a checkpoint of a sandbox, of any status.
func (s *Store) CheckpointByName(ctx context.Context, sandboxID, name string) (Snapshot, error) {
	return s.oneSnapshot(ctx, `kind = 'checkpoint' AND name <> '' AND sandbox_id = $1 AND name = $2`, sandboxID, name)
}

// NewestDiskSnapshot finds the newest snapshot without memory that is ready and
// was taken of a sandbox.
func (s *Store) NewestDiskSnapshot(ctx context.Context, org, sandboxID string) (Snapshot, error) {
	return s.oneSnapshot(ctx, `sandbox_id = $1 AND org = $2 AND memory = 0 AND status = 'ready'
		ORDER BY created_at DESC, id DESC LIMIT 1`, sandboxID, org)
}

// NewestCheckpoint finds the newest checkpoint of a sandbox that is ready.
func (s *Store) NewestCheckpoint(ctx context.Context, sandboxID string) (Snapshot, error) {
	return s.oneSnapshot(ctx, `sandbox_id = $1 AND kind = 'checkpoint' AND status = 'ready'
		ORDER BY created_at DESC, id DESC LIMIT 1`, sandboxID)
}

func (s *Store) oneSnapshot(ctx context.Context, where string, args ...any) (Snapshot, error) {
	n, err := scanSnapshot(s.read.QueryRowContext(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE `+where, args...))
	return n, s.fail("get snapshot", err)
}

// SnapshotQuery selects ready snapshots of one org. Empty fields select all.
type SnapshotQuery struct {
	Org       string
	SandboxID string
	Kind      api.SnapshotKind
	Limit     int    // rows of a page, at least 1
	Page      string // NextPage of the page before
}

// ListSnapshots gives one page as ListSandboxes does.
func (s *Store) ListSnapshots(ctx context.Context, q SnapshotQuery) (page []Snapshot, next string, err error) {
	var where strings.Builder
	args := []any{q.Org}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	where.WriteString("org = $1 AND status = 'ready'")
	if q.Page != "" {
		at, id, err := decodePage(q.Page, api.ValidSnapshotID)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(&where, " AND (created_at, id) < (%s, %s)", arg(at), arg(id))
	}
	if q.SandboxID != "" {
		where.WriteString(" AND sandbox_id = " + arg(q.SandboxID))
	}
	if q.Kind != "" {
		where.WriteString(" AND kind = " + arg(string(q.Kind)))
	}
	page, err = s.selectSnapshots(ctx, "list snapshots", where.String()+` ORDER BY created_at DESC, id DESC LIMIT `+arg(q.Limit+1), args...)
	if err == nil && len(page) > q.Limit {
		page = page[:q.Limit]
		last := page[q.Limit-1]
		next = encodePage(micros(last.CreatedAt), last.ID)
	}
	return page, next, err
}

// Checkpoints gives the checkpoints of a sandbox in every status, oldest first.
func (s *Store) Checkpoints(ctx context.Context, sandboxID string) ([]Snapshot, error) {
	return s.selectSnapshots(ctx, "checkpoints", `sandbox_id = $1 AND kind = 'checkpoint' ORDER BY created_at, id`, sandboxID)
}

// AllSnapshots gives every row of every org and status.
func (s *Store) AllSnapshots(ctx context.Context) ([]Snapshot, error) {
	return s.selectSnapshots(ctx, "all snapshots", `1 = 1 ORDER BY created_at`)
}

// SetCheckpointAge gives the checkpoints of a sandbox an end at an age; 0 is
// never.
func (s *Store) SetCheckpointAge(ctx context.Context, sandboxID string, age time.Duration) error {
	set, args := `0`, []any{sandboxID}
	if age > 0 {
		set, args = `created_at + $2`, append(args, age.Microseconds())
	}
	_, err := s.exec(ctx, "set checkpoint age", `UPDATE snapshots SET expires_at = `+set+` WHERE sandbox_id = $1 AND kind = 'checkpoint'`, args...)
	return err
}

// overdue are the checkpoints that may go at the end of their time: the one that
// its sandbox goes on from stays.
const overdue = `kind = 'checkpoint' AND status = 'ready' AND expires_at > 0 AND NOT EXISTS
	(SELECT 1 FROM sandboxes WHERE sandboxes.id = snapshots.sandbox_id AND sandboxes.snapshot_id = snapshots.id)`

// ExpiredCheckpoints gives at most limit checkpoints whose time ended by now.
func (s *Store) ExpiredCheckpoints(ctx context.Context, now time.Time, limit int) ([]Snapshot, error) {
	return s.selectSnapshots(ctx, "expired checkpoints", overdue+` AND expires_at <= $1 ORDER BY expires_at LIMIT $2`, micros(now), limit)
}

// NextCheckpointExpiry is when the time of the next checkpoint ends; zero when
// none does.
func (s *Store) NextCheckpointExpiry(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	err := s.read.QueryRowContext(ctx, `SELECT min(expires_at) FROM snapshots WHERE `+overdue).Scan(&at)
	return fromMicros(at.Int64), s.fail("next checkpoint expiry", err)
}

func (s *Store) selectSnapshots(ctx context.Context, op, where string, args ...any) ([]Snapshot, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE `+where, args...)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	var out []Snapshot
	for rows.Next() {
		n, err := scanSnapshot(rows)
		if err != nil {
			return nil, s.fail(op, err)
		}
		out = append(out, n)
	}
	return out, s.fail(op, rows.Err())
}
