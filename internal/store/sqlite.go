package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/api"
	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

// quickCheckMax is the size up to which every page of a database file is looked
// at before it is opened. Above it only the header is, so that a large database
// does not delay the start by seconds; damage elsewhere is then found by the
// first query that meets it.
const quickCheckMax = 64 << 20

// readers bounds the connections that read beside the writer.
const readers = 4

func (s *Store) openSQLite(ctx context.Context, path string) error {
	s.engine = engineSQLite
	if path == "" {
		return api.Errorf(api.CodeInvalidRequest, "the database's path is empty")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database's path cannot be resolved")
	}
	if err := checkHeader(path); err != nil {
		return err
	}
	if err := s.quickCheck(ctx, path); err != nil {
		return err
	}
	// The file holds tokens. SQLite gives its side files the same mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database file %s cannot be opened", path)
	}
	if err := f.Close(); err != nil {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database file %s cannot be opened", path)
	}

	if s.write, err = sql.Open("sqlite", sqliteURI(path, url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(NORMAL)"},
	})); err != nil {
		return s.fail("open", err)
	}
	s.write.SetMaxOpenConns(1)
	s.write.SetConnMaxIdleTime(0)
	if s.read, err = sql.Open("sqlite", sqliteURI(path, url.Values{
		"_pragma": {"busy_timeout(5000)", "query_only(1)"},
	})); err != nil {
		return s.fail("open", err)
	}
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	// The writer goes first: it is the one that may switch the file to WAL.
	return s.fail("open", s.write.PingContext(ctx))
}

func sqliteURI(path string, query url.Values) string {
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// checkHeader refuses a file that is not a SQLite database or is shorter than
// its header says, without opening it for writing. A file that does not exist
// or is empty is a database to be made.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database file %s cannot be opened", path)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database file %s cannot be read", path)
	}
	if !st.Mode().IsRegular() {
		return api.Errorf(api.CodeStoreUnavailable, "%s is not a file, so it cannot be the database", path)
	}
	if st.Size() == 0 {
		return nil
	}
	var head [100]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return corrupt(path, err)
	}
	if string(head[:16]) != "SQLite format 3\x00" {
		return corrupt(path, errors.New("the first bytes are not those of a SQLite database"))
	}
	size := int64(binary.BigEndian.Uint16(head[16:]))
	if size == 1 { // the format's way to write 65536 in two bytes
		size = 65536
	}
	// A write-ahead log may hold the pages that the file has not got yet.
	if hasLog(path) {
		return nil
	}
	if pages := int64(binary.BigEndian.Uint32(head[28:])); size*pages > st.Size() {
		return corrupt(path, errors.New("the file is shorter than its header says"))
	}
	return nil
}

// quickCheck reads the whole of a database file and refuses it when any page is
// damaged, changing nothing. With no write-ahead log the file is read as one
// that nobody writes, which leaves no side files; with one it is opened
// read-only, because the log may hold what the file lacks.
func (s *Store) quickCheck(ctx context.Context, path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (st.Size() == 0 || st.Size() > quickCheckMax) {
		return nil
	}
	if err != nil {
		return api.Wrap(api.CodeStoreUnavailable, err, "the database file %s cannot be read", path)
	}
	if !hasLog(path) {
		err = s.quickCheckWith(ctx, path, url.Values{"mode": {"ro"}, "immutable": {"1"}})
	}
	if hasLog(path) {
		err = s.quickCheckWith(ctx, path, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)"}})
	}
	return err
}

// hasLog reports whether a write-ahead log with content lies beside the file.
func hasLog(path string) bool {
	wal, err := os.Stat(path + "-wal")
	return err == nil && wal.Size() > 0
}

func (s *Store) quickCheckWith(ctx context.Context, path string, query url.Values) (err error) {
	db, err := sql.Open("sqlite", sqliteURI(path, query))
	if err != nil {
		return s.fail("check", err)
	}
	db.SetMaxOpenConns(1)
	defer func() {
		if closeErr := db.Close(); err == nil {
			err = s.fail("check", closeErr)
		}
	}()
	var verdict string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return s.fail("check", err)
	}
	if verdict != "ok" {
		return corrupt(path, errors.New(verdict))
	}
	return nil
}

func corrupt(path string, cause error) error {
	return api.Wrap(api.CodeStoreCorrupt, cause, "the database file %s is damaged", path)
}
