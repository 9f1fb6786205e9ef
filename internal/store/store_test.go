package store_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
	"github.com/pandastack/pandastack/internal/store/pgtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m, os.Getenv("CI") != "")
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// engines runs a test on an empty database of each engine.
func engines(t *testing.T, f func(t *testing.T, dsn string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, pgtest.DSN(t))
	})
}

func open(t testing.TB, dsn string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func wantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code || err == nil {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenAgain(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		b := newSandbox("org")
		must(t, s.CreateSandbox(t.Context(), b, 10))
		must(t, s.AddEvents(t.Context(), []store.Event{{Org: "org", SandboxID: b.ID, Type: "x", At: time.Now()}}))
		again := open(t, dsn)
		got, err := again.GetSandbox(t.Context(), b.ID)
		must(t, err)
		if got.ID != b.ID {
			t.Fatalf("got %+v", got)
		}
		must(t, again.Ping(t.Context()))
	})
}

func TestOpenConcurrently(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				s, err := store.Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.CreateSandbox(t.Context(), newSandbox("org"), 10); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		open(t, dsn)
		execSQL(t, dsn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, `+map[bool]string{true: "1", false: "true"}[dsn[:3] == "sql"]+`)`)
		_, err := store.Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
		wantCode(t, err, api.CodeUnsupported)
		t.Log(err)
	})
}

func TestBadDSN(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"", "mysql://x", "sqlite:", "postgres://[", "file.db"} {
		_, err := store.Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		var mu sync.Mutex
		seen := map[string]bool{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				v, err := s.Setting(t.Context(), "instance", api.NewID())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[v] = true
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(seen) != 1 {
			t.Fatalf("%d values of one setting", len(seen))
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		now := time.Now().UTC().Truncate(time.Microsecond)
		admin := store.Key{Hash: "h1", Prefix: "pds_1", Org: "o", Name: "ä \" '", Admin: true, CreatedAt: now}
		plain := store.Key{Hash: "h2", Prefix: "pds_2", Org: "o", Name: "plain", CreatedAt: now.Add(time.Second)}
		must(t, s.AddKey(ctx, admin))
		must(t, s.AddKey(ctx, plain))
		if err := s.AddKey(ctx, store.Key{Hash: "h3", Prefix: "pds_2", Org: "o"}); !errors.Is(err, store.ErrConflict) {
			t.Fatal(err)
		}
		got, err := s.KeyByHash(ctx, "h1")
		must(t, err)
		if got != admin {
			t.Fatalf("%+v is not %+v", got, admin)
		}
		_, err = s.RevokeKey(ctx, "o", "pds_1", now)
		wantCode(t, err, api.CodeInvalidRequest)
		if _, err = s.RevokeKey(ctx, "other", "pds_2", now); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		must(t, s.TouchKeys(ctx, map[string]time.Time{"h2": now}))
		hash, err := s.RevokeKey(ctx, "o", "pds_2", now)
		must(t, err)
		got, err = s.KeyByHash(ctx, hash)
		must(t, err)
		if !got.RevokedAt.Equal(now) || !got.LastUsed.Equal(now) {
			t.Fatalf("%+v", got)
		}
		keys, err := s.Keys(ctx, "o")
		must(t, err)
		if len(keys) != 1 || keys[0] != admin {
			t.Fatalf("%+v", keys)
		}
		if n, err := s.CountKeys(ctx); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.KeyByHash(ctx, "none"); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	})
}
