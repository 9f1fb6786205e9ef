package store

import (
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/pandastack/pandastack/internal/store/pgtest"
	"github.com/pressly/goose/v3"
)

// Every migration can be taken back, and made again after that.
func TestMigrationsGoBothWays(t *testing.T) {
	t.Parallel()
	for dialect, dsn := range map[goose.Dialect]func(t *testing.T) string{
		goose.DialectSQLite3:  func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		goose.DialectPostgres: func(t *testing.T) string { return pgtest.DSN(t) },
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), dsn(t), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			dir, err := fs.Sub(migrationFiles, "migrations")
			if err != nil {
				t.Fatal(err)
			}
			provider, err := goose.NewProvider(dialect, s.write, dir, goose.WithDisableGlobalRegistry(true))
			if err != nil {
				t.Fatal(err)
			}
			for range len(provider.ListSources()) {
				if _, err := provider.Down(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.AllSandboxes(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
