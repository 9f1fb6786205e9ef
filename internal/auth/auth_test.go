package auth_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*auth.Keys
	store *store.Store
	dir   string
}

func setup(t *testing.T) fixture {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "a.db"), slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return fixture{auth.NewKeys(s, slog.New(slog.DiscardHandler)), s, dir}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if err == nil || api.CodeOf(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

// admin bootstraps and gives the first key and who holds it.
func (f fixture) admin(t *testing.T) (string, auth.Identity) {
	t.Helper()
	path := filepath.Join(f.dir, "admin.key")
	created, err := f.Bootstrap(t.Context(), path)
	must(t, err)
	if !created {
		t.Fatal("nothing was made")
	}
	content, err := os.ReadFile(path)
	must(t, err)
	key := strings.TrimSpace(string(content))
	who, err := f.Authenticate(t.Context(), key)
	must(t, err)
	return key, who
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	f := setup(t)
	key, who := f.admin(t)
	if who != (auth.Identity{Org: auth.DefaultOrg, KeyPrefix: key[:12], Name: "admin", Admin: true}) {
		t.Fatalf("%+v", who)
	}
	path := filepath.Join(f.dir, "admin.key")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
	must(t, os.Remove(path))
	if created, err := f.Bootstrap(t.Context(), path); created || err != nil {
		t.Fatal(created, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a second start wrote a key")
	}
}

// The file is there and the row is not: a crash, or a database begun anew.
func TestBootstrapTakesUpTheKeyInTheFile(t *testing.T) {
	t.Parallel()
	f := setup(t)
	path := filepath.Join(f.dir, "admin.key")
	key := "pds_" + strings.Repeat("ab", 20)
	must(t, os.WriteFile(path, []byte(key), 0o644))
	if got, _ := f.admin(t); got != key {
		t.Fatal(got)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
}

func TestBootstrapKeepsAForeignFile(t *testing.T) {
	t.Parallel()
	f := setup(t)
	path := filepath.Join(f.dir, "admin.key")
	must(t, os.WriteFile(path, []byte("my notes"), 0o600))
	_, err := f.Bootstrap(t.Context(), path)
	wantCode(t, err, api.CodeHostSetup)
	if content, _ := os.ReadFile(path); string(content) != "my notes" {
		t.Fatal(string(content))
	}
	_, err = f.Bootstrap(t.Context(), filepath.Join(f.dir, "no/such/file"))
	wantCode(t, err, api.CodeHostSetup)
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	f := setup(t)
	key, who := f.admin(t)
	same, err := f.Authenticate(t.Context(), "e2b_"+key[4:])
	must(t, err)
	if same != who {
		t.Fatalf("%+v is not %+v", same, who)
	}
	for _, bad := range []string{"", "pds_", key[4:], key + "0", key[:43], "PDS_" + key[4:], "pds_" + strings.ToUpper(key[4:]) + "G",
		"pds_" + strings.Repeat("g", 40), "pds_" + strings.Repeat("0", 40), " " + key, strings.Repeat("x", 1<<20)} {
		_, err := f.Authenticate(t.Context(), bad)
		wantCode(t, err, api.CodeInvalidToken)
	}
	// A remembered key needs no store.
	must(t, f.store.Close())
	_, err = f.Authenticate(t.Context(), key)
	must(t, err)
}

func TestManage(t *testing.T) {
	t.Parallel()
	f, ctx := setup(t), t.Context()
	_, admin := f.admin(t)
	made, err := f.Create(ctx, admin, api.CreateToken{Name: "ci"})
	must(t, err)
	who, err := f.Authenticate(ctx, made.Key)
	must(t, err)
	if who.Admin || who.Name != "ci" || who.KeyPrefix != made.Prefix || who.Org != admin.Org || !strings.HasPrefix(made.Key, made.Prefix) {
		t.Fatalf("%+v", who)
	}
	_, err = f.Create(ctx, who, api.CreateToken{Name: "x"})
	wantCode(t, err, api.CodeForbidden)
	wantCode(t, f.Revoke(ctx, who, admin.KeyPrefix), api.CodeForbidden)
	for _, name := range []string{"", strings.Repeat("x", 129), "a\nb", "a\x00b", "\xff"} {
		_, err = f.Create(ctx, admin, api.CreateToken{Name: name})
		wantCode(t, err, api.CodeInvalidRequest)
	}
	list, err := f.List(ctx, admin)
	must(t, err)
	own, err := f.List(ctx, who)
	must(t, err)
	if len(list.Tokens) != 2 || len(own.Tokens) != 1 || own.Tokens[0].Prefix != who.KeyPrefix {
		t.Fatalf("%+v %+v", list, own)
	}
	for _, prefix := range []string{"", "pds_", "pds_00000000", "pds_0000000'", made.Key} {
		wantCode(t, f.Revoke(ctx, admin, prefix), api.CodeTokenNotFound)
	}
	wantCode(t, f.Revoke(ctx, auth.Identity{Org: "foreign", Admin: true}, made.Prefix), api.CodeTokenNotFound)
	wantCode(t, f.Revoke(ctx, admin, admin.KeyPrefix), api.CodeInvalidRequest)
	must(t, f.Revoke(ctx, who, made.Prefix))
	_, err = f.Authenticate(ctx, made.Key)
	wantCode(t, err, api.CodeTokenRevoked)
	wantCode(t, f.Revoke(ctx, admin, made.Prefix), api.CodeTokenNotFound)
}

func TestLastUseIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	key, admin := f.admin(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { must(t, f.Run(ctx)) })
	for range 100 {
		_, err := f.Authenticate(t.Context(), key)
		must(t, err)
	}
	cancel()
	wg.Wait()
	list, err := f.List(t.Context(), admin)
	must(t, err)
	if list.Tokens[0].LastUsed == nil {
		t.Fatal("the last use was not written")
	}
}

// Whoever gets a yes after Revoke has returned was let in by a stale answer.
func TestRevokeAgainstConcurrentUse(t *testing.T) {
	t.Parallel()
	f, ctx := setup(t), t.Context()
	_, admin := f.admin(t)
	for range 20 {
		made, err := f.Create(ctx, admin, api.CreateToken{Name: "x"})
		must(t, err)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = f.Authenticate(ctx, made.Key)
					}
				}
			})
		}
		must(t, f.Revoke(ctx, admin, made.Prefix))
		_, err = f.Authenticate(ctx, made.Key)
		wantCode(t, err, api.CodeTokenRevoked)
		close(stop)
		wg.Wait()
	}
}
