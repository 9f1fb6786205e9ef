package store

import (
	"context"
	"embed"
	"io/fs"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrateTries is how often a migration is tried. Programs that open an empty
// database at the same time race to make the same tables; each migration is one
// transaction, so the loser finds the winner's work at its next try.
const migrateTries = 5

// migrate brings the schema up to date. A schema newer than this program is
// refused: its rows may mean what this program does not know.
func (s *Store) migrate(ctx context.Context) error {
	dir, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return err
	}
	dialect := goose.DialectSQLite3
	if s.engine == enginePostgres {
		dialect = goose.DialectPostgres
	}
	provider, err := goose.NewProvider(dialect, s.write, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return s.fail("migrate", err)
	}
	for try := 1; ; try++ {
		if err = s.migrateOnce(ctx, provider); err == nil {
			return nil
		}
		code := api.CodeOf(err)
		if try == migrateTries || code == api.CodeUnsupported || code == api.CodeStoreCorrupt {
			return err
		}
		select {
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		case <-ctx.Done():
			return s.fail("migrate", ctx.Err())
		}
	}
}

func (s *Store) migrateOnce(ctx context.Context, provider *goose.Provider) error {
	have, known, err := provider.GetVersions(ctx)
	if err != nil {
		return s.fail("migrate", err)
	}
	if have > known {
		return api.Errorf(api.CodeUnsupported, "the database has schema version %d and this program knows versions up to %d", have, known).
			WithHint("A newer version of pandastack wrote this database; run that version, or restore a backup from before the upgrade.")
	}
	if have == known {
		return nil
	}
	done, err := provider.Up(ctx)
	if err != nil {
		return s.fail("migrate", err)
	}
	for _, m := range done {
		s.log.Debug("schema changed", "migration", m.Source.Path, "took", m.Duration)
	}
	return nil
}
