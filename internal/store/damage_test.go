package store_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
	"github.com/pandastack/pandastack/internal/store/pgtest"
)

func pgtestDSN(tb testing.TB) string { return pgtest.DSN(tb) }

// execSQL changes a database behind the store's back.
func execSQL(t *testing.T, dsn, query string) {
	t.Helper()
	driver, name := "pgx", dsn
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		driver, name = "sqlite", path
	}
	db, err := sql.Open(driver, name)
	must(t, err)
	_, err = db.ExecContext(t.Context(), query)
	must(t, err)
	must(t, db.Close())
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "real.db")
	s, err := store.Open(t.Context(), "sqlite:"+path, slog.New(slog.DiscardHandler))
	must(t, err)
	for range 200 {
		must(t, s.CreateSandbox(t.Context(), newSandbox("o"), 1000))
	}
	must(t, s.Close())
	real, err := os.ReadFile(path)
	must(t, err)
	overwritten := bytes.Clone(real)
	for i := 8192; i < 8192+3*4096; i++ {
		overwritten[i] = byte(i * 7)
	}
	for name, content := range map[string][]byte{
		"garbage":     bytes.Repeat([]byte("not a database. "), 1000),
		"short":       []byte("hi"),
		"truncated":   real[:len(real)/2],
		"torn page":   real[:len(real)-100],
		"overwritten": overwritten,
		"zeroed head": append(make([]byte, 4096), real[4096:]...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "x.db")
			must(t, os.WriteFile(path, content, 0o600))
			_, err := store.Open(t.Context(), "sqlite:"+path, slog.New(slog.DiscardHandler))
			wantCode(t, err, api.CodeStoreCorrupt)
			now, err := os.ReadFile(path)
			must(t, err)
			if !bytes.Equal(now, content) {
				t.Error("the file was changed")
			}
			entries, err := os.ReadDir(dir)
			must(t, err)
			if len(entries) != 1 {
				t.Errorf("files were left beside it: %v", entries)
			}
		})
	}
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		copied := filepath.Join(t.TempDir(), "a?b%41 #.db")
		must(t, os.WriteFile(copied, real, 0o600))
		rows, err := open(t, "sqlite:"+copied).AllSandboxes(t.Context())
		if len(rows) != 200 || err != nil {
			t.Fatal(len(rows), err)
		}
	})
}

// A server that was killed leaves a write-ahead log that the next one needs.
func TestOpenAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, "sqlite:"+filepath.Join(dir, "a.db"))
	b := newSandbox("o")
	must(t, s.CreateSandbox(t.Context(), b, 1))
	crashed := t.TempDir()
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, "a.db"+suffix))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(crashed, "a.db"+suffix), data, 0o600))
	}
	_, err := open(t, "sqlite:"+filepath.Join(crashed, "a.db")).GetSandbox(t.Context(), b.ID)
	must(t, err)
}

func TestFileMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, "sqlite:"+filepath.Join(dir, "a.db"))
	must(t, s.CreateSandbox(t.Context(), newSandbox("o"), 1))
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
}

func TestUnusablePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "no/such/x.db")} {
		_, err := store.Open(t.Context(), "sqlite:"+path, slog.New(slog.DiscardHandler))
		wantCode(t, err, api.CodeStoreUnavailable)
	}
}

func TestPostgresAway(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	dsn, err := server.Database(t.Context())
	must(t, err)
	s := open(t, dsn)
	must(t, s.Ping(t.Context()))
	must(t, server.Stop())
	for range 3 {
		wantCode(t, s.Ping(t.Context()), api.CodeStoreUnavailable)
		wantCode(t, s.CreateSandbox(t.Context(), newSandbox("o"), 1), api.CodeStoreUnavailable)
	}
	_, err = store.Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
	wantCode(t, err, api.CodeStoreUnavailable)
	_, err = store.Open(t.Context(), "postgres://127.0.0.1:1/x", slog.New(slog.DiscardHandler))
	wantCode(t, err, api.CodeStoreUnavailable)
}
