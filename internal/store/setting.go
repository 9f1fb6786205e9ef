package store

import (
	"context"
	"errors"
)

// Setting gives the value kept under name. If there is none, initial is kept
// and given, so that concurrent callers agree on one value.
func (s *Store) Setting(ctx context.Context, name, initial string) (string, error) {
	const get = `SELECT value FROM settings WHERE name = $1`
	var value string
	err := s.fail("setting", s.read.QueryRowContext(ctx, get, name).Scan(&value))
	if !errors.Is(err, ErrNotFound) {
		return value, err
	}
	if _, err := s.exec(ctx, "setting", `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, initial); err != nil {
		return "", err
	}
	err = s.fail("setting", s.read.QueryRowContext(ctx, get, name).Scan(&value))
	return value, err
}
