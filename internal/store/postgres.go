package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pandastack/pandastack/api"
)

// poolSize bounds the connections of one server to PostgreSQL.
const poolSize = 16

func (s *Store) openPostgres(ctx context.Context, dsn string) error {
	s.engine = enginePostgres
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		// The text may hold the password, so it is not repeated.
		return api.Wrap(api.CodeInvalidRequest, err, "the PostgreSQL address is not valid")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "pandastack"
	}
	s.write = stdlib.OpenDB(*cfg)
	s.write.SetMaxOpenConns(poolSize)
	s.write.SetMaxIdleConns(poolSize)
	s.write.SetConnMaxIdleTime(5 * time.Minute)
	s.read = s.write
	return s.fail("open", s.write.PingContext(ctx))
}
