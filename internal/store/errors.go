package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pandastack/pandastack/api"
	"modernc.org/sqlite"
)

// SQLite's primary result codes, the low byte of what the driver gives.
const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	sqliteIOErr      = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteProtocol   = 15
	sqliteConstraint = 19
	sqliteNotADB     = 26
)

// fail gives an error of the engine its meaning: ErrNotFound, ErrConflict, a
// coded error where a client may see it, or a plain error for what is a fault
// of ours. Errors that already have a meaning pass through.
func (s *Store) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var coded *api.Error
	if errors.As(err, &coded) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		return err
	}
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("store: %s: %w", op, ErrNotFound)
	case errors.As(err, &connect) && !errors.Is(err, context.Canceled):
		// Its own deadline is that of connecting, not the caller's.
		return api.Wrap(api.CodeStoreUnavailable, err, "the database cannot be reached")
	case errors.Is(err, context.DeadlineExceeded):
		return api.Wrap(api.CodeTimeout, err, "the database took too long")
	case errors.Is(err, context.Canceled):
		return api.Wrap(api.CodeCanceled, err, "the request was given up")
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return failSQLite(op, lite)
	}
	return failPostgres(op, err)
}

func failSQLite(op string, err *sqlite.Error) error {
	switch err.Code() & 0xff {
	case sqliteCorrupt, sqliteNotADB:
		return api.Wrap(api.CodeStoreCorrupt, err, "the database file is damaged")
	case sqliteFull:
		return api.Wrap(api.CodeStoreUnavailable, err, "the disk that holds the database is full")
	case sqliteBusy, sqliteLocked:
		return api.Wrap(api.CodeStoreUnavailable, err, "the database is held by another program")
	case sqliteReadOnly, sqliteIOErr, sqliteCantOpen, sqliteProtocol:
		return api.Wrap(api.CodeStoreUnavailable, err, "the database file cannot be read or written")
	case sqliteInterrupt:
		return api.Wrap(api.CodeCanceled, err, "the request was given up")
	case sqliteConstraint:
		return fmt.Errorf("store: %s: %w: %w", op, ErrConflict, err)
	}
	return fmt.Errorf("store: %s: %w", op, err)
}

func failPostgres(op string, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if pg.Code == "23505" { // unique_violation
			return fmt.Errorf("store: %s: %w: %w", op, ErrConflict, err)
		}
		switch pg.Code[:2] {
		// Connection, login, catalogue, resources, shutdown, system, and
		// what a standby or a crash recovery answers.
		case "08", "28", "3D", "53", "57", "58", "25":
			return api.Wrap(api.CodeStoreUnavailable, err, "the database does not serve requests now")
		case "XX": // internal error, data_corrupted, index_corrupted
			return api.Wrap(api.CodeStoreCorrupt, err, "the database reports damage")
		}
		return fmt.Errorf("store: %s: %w", op, err)
	}
	var network net.Error
	if errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database cannot be reached")
	}
	return fmt.Errorf("store: %s: %w", op, err)
}
