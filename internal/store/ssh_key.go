package store

import (
	"context"
	"database/sql"
	"time"
)

// SSHKey is a public key that stands for the API key that added it: it counts
// only as long as that one is valid.
type SSHKey struct {
	Org         string
	Fingerprint string // as SHA256:...
	Name        string
	PublicKey   string
	AddedBy     string // prefix of an API key
	CreatedAt   time.Time
}

const (
	sshKeyColumns = `s.org, s.fingerprint, s.name, s.public_key, s.added_by, s.created_at`
	// validSSHKeys are those whose API key was not revoked.
	validSSHKeys = `FROM ssh_keys s JOIN keys k ON k.prefix = s.added_by AND k.org = s.org AND k.revoked_at = 0`
)

// PutSSHKey keeps a key of an org, which may have most of them. One that is there
// already gets the new name only: it stays with the API key that added it, or
// whoever adds it again could have it end with a key of theirs. When that API key
// was revoked it is none, and is added anew. ok is false when there are as many as
// there may be.
func (s *Store) PutSSHKey(ctx context.Context, k *SSHKey, most int) (ok bool, err error) {
	const op = "put ssh key"
	err = s.tx(ctx, op, func(tx *sql.Tx) error {
		// Those that no longer count make room.
		if _, err := tx.ExecContext(ctx, `DELETE FROM ssh_keys WHERE org = $1 AND NOT EXISTS
			(SELECT 1 FROM keys k WHERE k.prefix = ssh_keys.added_by AND k.org = ssh_keys.org AND k.revoked_at = 0)`, k.Org); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM ssh_keys WHERE org = $1 AND fingerprint <> $2`, k.Org, k.Fingerprint).Scan(&n); err != nil {
			return err
		}
		if ok = n < most; !ok {
			return nil
		}
		var created int64
		err := tx.QueryRowContext(ctx, `INSERT INTO ssh_keys (org, fingerprint, name, public_key, added_by, created_at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (org, fingerprint) DO UPDATE SET name = excluded.name RETURNING added_by, created_at`,
			k.Org, k.Fingerprint, k.Name, k.PublicKey, k.AddedBy, micros(k.CreatedAt)).Scan(&k.AddedBy, &created)
		k.CreatedAt = fromMicros(created)
		return err
	})
	return ok, err
}

// SSHKeys lists the keys of an org, oldest first.
func (s *Store) SSHKeys(ctx context.Context, org string) ([]SSHKey, error) {
	return s.sshKeys(ctx, `SELECT `+sshKeyColumns+` `+validSSHKeys+` WHERE s.org = $1 ORDER BY s.created_at, s.fingerprint`, org)
}

// SSHKeysByFingerprint finds a key in every org that has it.
func (s *Store) SSHKeysByFingerprint(ctx context.Context, fingerprint string) ([]SSHKey, error) {
	return s.sshKeys(ctx, `SELECT `+sshKeyColumns+` `+validSSHKeys+` WHERE s.fingerprint = $1 ORDER BY s.org`, fingerprint)
}

func (s *Store) sshKeys(ctx context.Context, query, arg string) ([]SSHKey, error) {
	const op = "list ssh keys"
	rows, err := s.read.QueryContext(ctx, query, arg)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	var out []SSHKey
	for rows.Next() {
		var k SSHKey
		var created int64
		if err := rows.Scan(&k.Org, &k.Fingerprint, &k.Name, &k.PublicKey, &k.AddedBy, &created); err != nil {
			return nil, s.fail(op, err)
		}
		k.CreatedAt = fromMicros(created)
		out = append(out, k)
	}
	return out, s.fail(op, rows.Err())
}

// DeleteSSHKey removes a key of an org, or gives ErrNotFound.
func (s *Store) DeleteSSHKey(ctx context.Context, org, fingerprint string) error {
	return s.execOne(ctx, "delete ssh key", `DELETE FROM ssh_keys WHERE org = $1 AND fingerprint = $2`, org, fingerprint)
}
