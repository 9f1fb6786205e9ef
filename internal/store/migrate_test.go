package store

import (
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
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

// Sandboxes from before lineages were kept have one afterwards.
func TestLineageOfOldRows(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "a.db"), slog.New(slog.DiscardHandler))
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
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.write, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	old := &Sandbox{ID: api.NewID(), Org: "o", Template: "base", CreatedAt: time.Now()}
	if err := s.CreateSandbox(t.Context(), old, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.DownTo(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if err := s.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tree, err := s.LineageOf(t.Context(), "o", old.ID); err != nil || len(tree) != 1 || tree[0].RootID != old.ID {
		t.Fatal(tree, err)
	}
}
