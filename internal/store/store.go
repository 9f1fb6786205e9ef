// Package store keeps the control plane's rows in SQL: an embedded SQLite file
// or PostgreSQL, chosen by the DSN, with the same migrations and the same
// queries on both.
//
// What holds both engines together: placeholders are $1, $2, ...; columns are
// TEXT and BIGINT only; a time is microseconds since 1970 in UTC and 0 is "not
// set"; a truth value is 0 or 1; structures are JSON in TEXT.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// ErrNotFound is returned for a row that does not exist.
var ErrNotFound = errors.New("no such row")

// ErrConflict is returned when a row with the same key exists.
var ErrConflict = errors.New("the row exists")

// Store is an open database. Its methods may be called concurrently, and every
// one honours its context.
type Store struct {
	// SQLite allows one writer at a time: writes queue for the single
	// connection of write, where waiting honours the context, and reads go on
	// beside them. On PostgreSQL both are one pool.
	write, read *sql.DB
	engine      engine
	log         *slog.Logger

	eventMu   sync.Mutex
	lastEvent int64
}

type engine string

const (
	engineSQLite   engine = "sqlite"
	enginePostgres engine = "postgres"
)

// Open connects to the database that dsn names, "sqlite:/path/file.db" or
// "postgres://user@host/name", and brings its schema up to date. A damaged
// SQLite file gives server.store_corrupt and is left as it was; a database that
// cannot be reached gives server.store_unavailable.
func Open(ctx context.Context, dsn string, log *slog.Logger) (*Store, error) {
	s := &Store{log: log}
	var err error
	switch {
	case strings.HasPrefix(dsn, "sqlite:"):
		err = s.openSQLite(ctx, strings.TrimPrefix(dsn, "sqlite:"))
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		err = s.openPostgres(ctx, dsn)
	default:
		err = api.Errorf(api.CodeInvalidRequest, "the database must be given as sqlite:/path/file.db or postgres://user@host/name")
	}
	if err == nil {
		err = s.migrate(ctx)
	}
	if err == nil {
		err = s.loadLastEvent(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends all connections. Nothing may use the store afterwards.
func (s *Store) Close() error {
	var errs []error
	if s.read != nil && s.read != s.write {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	return errors.Join(errs...)
}

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.fail("ping", s.read.QueryRowContext(ctx, `SELECT 1`).Scan(&one))
}

// tx runs f within a transaction of the writer and commits if f returns nil.
func (s *Store) tx(ctx context.Context, op string, f func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(op, err)
	}
	if err := f(tx); err != nil {
		if rbErr := tx.Rollback(); rbErr != nil && !errors.Is(rbErr, sql.ErrTxDone) {
			s.log.Warn("rolling back failed", "op", op, "error", rbErr)
		}
		return s.fail(op, err)
	}
	return s.fail(op, tx.Commit())
}

// exec runs one statement of the writer and gives how many rows it changed.
func (s *Store) exec(ctx context.Context, op, query string, args ...any) (int64, error) {
	res, err := s.write.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, s.fail(op, err)
	}
	n, err := res.RowsAffected()
	return n, s.fail(op, err)
}

// execOne is exec for a statement that must meet exactly one row.
func (s *Store) execOne(ctx context.Context, op, query string, args ...any) error {
	n, err := s.exec(ctx, op, query, args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("store: %s: %w", op, ErrNotFound)
	}
	return err
}

// micros is a time as it is stored; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func fromBool(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
