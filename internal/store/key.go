package store

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Key is an API key. The secret itself is never stored.
type Key struct {
	Hash      string // SHA-256 of the secret's 40 hex digits, in hex
	Prefix    string // what users see of it; unique
	Org       string
	Name      string
	Admin     bool
	CreatedAt time.Time
	LastUsed  time.Time // zero: never
	RevokedAt time.Time // zero: valid
}

const keyColumns = `hash, prefix, org, name, admin, created_at, last_used, revoked_at`

func scanKey(row interface{ Scan(...any) error }) (Key, error) {
	var k Key
	var admin, created, used, revoked int64
	err := row.Scan(&k.Hash, &k.Prefix, &k.Org, &k.Name, &admin, &created, &used, &revoked)
	k.Admin = admin != 0
	k.CreatedAt, k.LastUsed, k.RevokedAt = fromMicros(created), fromMicros(used), fromMicros(revoked)
	return k, err
}

// AddKey keeps a key. ErrConflict means that its hash or prefix is taken.
func (s *Store) AddKey(ctx context.Context, k Key) error {
	_, err := s.exec(ctx, "add key", `INSERT INTO keys (`+keyColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		k.Hash, k.Prefix, k.Org, k.Name, fromBool(k.Admin), micros(k.CreatedAt), micros(k.LastUsed), micros(k.RevokedAt))
	return err
}

// KeyByHash finds a key, revoked ones included, or gives ErrNotFound.
func (s *Store) KeyByHash(ctx context.Context, hash string) (Key, error) {
	k, err := scanKey(s.read.QueryRowContext(ctx, `SELECT `+keyColumns+` FROM keys WHERE hash = $1`, hash))
	return k, s.fail("get key", err)
}

// Keys lists the valid keys of an org, oldest first.
func (s *Store) Keys(ctx context.Context, org string) ([]Key, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT `+keyColumns+` FROM keys WHERE org = $1 AND revoked_at = 0 ORDER BY created_at, prefix`, org)
	if err != nil {
		return nil, s.fail("list keys", err)
	}
	defer rows.Close()
	var keys []Key
	for rows.Next() {
		k, err := scanKey(rows)
		if err != nil {
			return nil, s.fail("list keys", err)
		}
		keys = append(keys, k)
	}
	return keys, s.fail("list keys", rows.Err())
}

// RevokeKey ends a valid key of an org for good and gives its hash. ErrNotFound
// means there is no such valid key. The last valid admin key of an org is
// refused with request.invalid, because nobody could make another.
func (s *Store) RevokeKey(ctx context.Context, org, prefix string, at time.Time) (hash string, err error) {
	k, err := scanKey(s.read.QueryRowContext(ctx,
		`SELECT `+keyColumns+` FROM keys WHERE prefix = $1 AND org = $2 AND revoked_at = 0`, prefix, org))
	if err != nil {
		return "", s.fail("revoke key", err)
	}
	n, err := s.exec(ctx, "revoke key", `UPDATE keys SET revoked_at = $1 WHERE hash = $2 AND revoked_at = 0 AND (admin = 0 OR
		(SELECT count(*) FROM keys k WHERE k.org = $3 AND k.admin = 1 AND k.revoked_at = 0) > 1)`, micros(at), k.Hash, org)
	if err != nil {
		return "", err
	}
	if n == 0 && k.Admin {
		return "", api.Errorf(api.CodeInvalidRequest, "%s is the last admin key; create another before revoking it", prefix)
	}
	return k.Hash, nil
}

// CountKeys counts all keys, revoked ones included.
func (s *Store) CountKeys(ctx context.Context) (int, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM keys`).Scan(&n)
	return n, s.fail("count keys", err)
}

// TouchKeys notes when keys, by hash, were used last.
func (s *Store) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	for hash, at := range used {
		if _, err := s.exec(ctx, "touch key", `UPDATE keys SET last_used = $1 WHERE hash = $2 AND last_used < $1`, micros(at), hash); err != nil {
			return err
		}
	}
	return nil
}
