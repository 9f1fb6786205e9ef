package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

func newSandbox(org string) *store.Sandbox {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return &store.Sandbox{ID: api.NewID(), Org: org, KeyPrefix: "pds_12345678", Template: "base", Driver: "gvisor",
		Status: api.StatusCreating, Host: "h", Token: "t", CreatedAt: now, UpdatedAt: now}
}

func TestSandboxRow(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		b := newSandbox("o")
		b.Metadata = map[string]string{"a": "ä\x00'\"", "long": strings.Repeat("x", 60<<10), "": ""}
		b.Spec = store.Spec{CPU: 1.5, MemoryMB: 512, DiskMB: 1024}
		b.ParentID, b.TreeID = "parent", "tree"
		must(t, s.CreateSandbox(ctx, b, 10))
		if err := s.CreateSandbox(ctx, b, 10); !errors.Is(err, store.ErrConflict) {
			t.Fatal(err)
		}
		b.Status, b.GuestIP, b.TTLSeconds, b.Driver = api.StatusRunning, "10.200.0.2", 60, "other"
		b.ExpiresAt = b.CreatedAt.Add(time.Minute)
		b.Boot = store.Boot{Mode: api.BootRestore, MS: 12.5, Steps: []api.Step{{Name: "restore", MS: 3}}}
		b.Error = &api.Error{Code: api.CodeSandboxDied, Message: "memory", Hint: "h"}
		b.SnapshotID, b.Idle = "snap", &api.IdlePolicy{TimeoutSeconds: 5, IgnoreStreams: true, CPUPercent: 1.5}
		b.Checkpoints = api.CheckpointPolicy{KeepLast: 3, MaxAgeSeconds: 60}
		must(t, s.UpdateSandbox(ctx, b))
		got, err := s.GetSandbox(ctx, b.ID)
		must(t, err)
		if !reflect.DeepEqual(&got, b) {
			t.Fatalf("\n%+v is not\n%+v", got, b)
		}
		must(t, s.DeleteSandbox(ctx, b.ID, time.Now()))
		must(t, s.DeleteSandbox(ctx, b.ID, time.Now()))
		if _, err := s.GetSandbox(ctx, b.ID); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		if err := s.UpdateSandbox(ctx, b); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		page, _, err := s.ListSandboxes(ctx, store.SandboxQuery{Org: "o", Metadata: b.Metadata, Limit: 5})
		if len(page) != 0 || err != nil {
			t.Fatal(page, err)
		}
	})
}

func TestQuotaHoldsUnderConcurrency(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, other := open(t, dsn), open(t, dsn)
		const quota, tries = 5, 24
		var made, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range tries {
			wg.Go(func() {
				st := s
				if i%2 == 1 {
					st = other
				}
				switch err := st.CreateSandbox(t.Context(), newSandbox("o"), quota); {
				case err == nil:
					made.Add(1)
				case api.CodeOf(err) == api.CodeQuotaSandboxes:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if made.Load() != quota || refused.Load() != tries-quota {
			t.Fatalf("made %d, refused %d", made.Load(), refused.Load())
		}
		must(t, s.CreateSandbox(t.Context(), newSandbox("another"), quota))
	})
}

func TestListPagesAndFilters(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		at := time.Now().UTC().Truncate(time.Second)
		var want []string // newest first; several have the same time
		for i := range 25 {
			b := newSandbox("o")
			b.CreatedAt = at.Add(time.Duration(i/4) * time.Second)
			b.Metadata = map[string]string{"parity": fmt.Sprint(i % 2), "all": "yes"}
			if i%5 == 0 {
				b.Status, b.Template = api.StatusRunning, "node"
			}
			must(t, s.CreateSandbox(ctx, b, 100))
			if i%2 == 1 {
				want = append(want, b.ID)
			}
		}
		foreign := newSandbox("foreign")
		foreign.Metadata = map[string]string{"parity": "1"}
		must(t, s.CreateSandbox(ctx, foreign, 10))

		var got []string
		q := store.SandboxQuery{Org: "o", Metadata: map[string]string{"parity": "1", "all": "yes"}, Limit: 5}
		var last time.Time
		for pages := 1; ; pages++ {
			page, next, err := s.ListSandboxes(ctx, q)
			must(t, err)
			for _, b := range page {
				if !last.IsZero() && b.CreatedAt.After(last) {
					t.Fatal("not newest first")
				}
				last = b.CreatedAt
				got = append(got, b.ID)
			}
			if q.Page = next; next == "" {
				if pages != 3 {
					t.Fatalf("%d pages", pages)
				}
				break
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("got %d of %d", len(got), len(want))
		}
		count := func(q store.SandboxQuery) int {
			q.Org, q.Limit = "o", 100
			page, next, err := s.ListSandboxes(ctx, q)
			must(t, err)
			if next != "" {
				t.Fatal("a page after the last")
			}
			return len(page)
		}
		for want, q := range map[int]store.SandboxQuery{
			25: {}, 5: {Template: "node"}, 20: {Status: []api.Status{api.StatusCreating, api.StatusPaused}},
			0: {Metadata: map[string]string{"parity": "2"}}, 2: {Status: []api.Status{api.StatusRunning}, Metadata: map[string]string{"parity": "1"}},
		} {
			if n := count(q); n != want {
				t.Errorf("%+v: %d rows, want %d", q, n, want)
			}
		}
		all, err := s.AllSandboxes(ctx)
		if len(all) != 26 || err != nil {
			t.Fatal(len(all), err)
		}
		for _, bad := range []string{"x", "!!", "MS4n", "MS5rM3Y5eDBxMm03YzFiOG40dDZ6J", strings.Repeat("A", 500)} {
			_, _, err := s.ListSandboxes(ctx, store.SandboxQuery{Org: "o", Limit: 1, Page: bad})
			wantCode(t, err, api.CodeInvalidRequest)
		}
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		now := time.Now().UTC().Truncate(time.Microsecond)
		if next, err := s.NextExpiry(ctx); !next.IsZero() || err != nil {
			t.Fatal(next, err)
		}
		for i, status := range []api.Status{api.StatusRunning, api.StatusPaused, api.StatusCreating, api.StatusDeleting, api.StatusFailed, api.StatusRunning} {
			b := newSandbox("o")
			b.Status = status
			if i < 5 {
				b.ExpiresAt = now.Add(time.Duration(i) * time.Second)
			}
			must(t, s.CreateSandbox(ctx, b, 10))
		}
		next, err := s.NextExpiry(ctx)
		if !next.Equal(now) || err != nil {
			t.Fatal(next, err)
		}
		rows, err := s.ExpiredSandboxes(ctx, now.Add(time.Second), 10)
		if len(rows) != 2 || err != nil {
			t.Fatal(len(rows), err)
		}
		rows, err = s.ExpiredSandboxes(ctx, now.Add(time.Hour), 10)
		if len(rows) != 3 || err != nil {
			t.Fatal(len(rows), err)
		}
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, other, ctx := open(t, dsn), open(t, dsn), t.Context()
		live := newSandbox("o")
		must(t, s.CreateSandbox(ctx, live, 10))
		var wg sync.WaitGroup
		for _, st := range []*store.Store{s, other} {
			wg.Go(func() {
				for i := range 10 {
					events := []store.Event{
						{Org: "o", SandboxID: live.ID, Type: "a", At: time.Now(), Data: map[string]string{"i": fmt.Sprint(i)}},
						{Org: "o", SandboxID: "gone", Type: "b", At: time.Now()},
					}
					if err := st.AddEvents(ctx, events); err != nil {
						t.Error(err)
						return
					}
					if events[0].ID == 0 || events[1].ID <= events[0].ID {
						t.Error("ids do not grow", events)
					}
				}
			})
		}
		wg.Wait()
		all, err := s.Events(ctx, "o", live.ID, 0, 0)
		must(t, err)
		if len(all) != 20 || all[3].Data["i"] == "" || !slices.IsSortedFunc(all, func(a, b store.Event) int { return int(a.ID - b.ID) }) {
			t.Fatalf("%+v", all)
		}
		rest, err := s.Events(ctx, "o", live.ID, all[16].ID, 0)
		if len(rest) != 3 || rest[0].ID != all[17].ID || err != nil {
			t.Fatalf("%+v %v", rest, err)
		}
		tail, err := s.Events(ctx, "o", live.ID, 0, 2)
		if len(tail) != 2 || tail[1].ID != all[19].ID || tail[0].ID != all[18].ID || err != nil {
			t.Fatalf("%+v %v", tail, err)
		}
		if none, err := s.Events(ctx, "foreign", live.ID, 0, 0); len(none) != 0 || err != nil {
			t.Fatal(none, err)
		}
		future := time.Now().Add(time.Hour)
		if n, err := s.PruneEvents(ctx, future, time.Now().Add(-time.Hour)); n != 20 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := s.PruneEvents(ctx, future, future); n != 20 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestContextIsHonoured(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantCode(t, s.CreateSandbox(ctx, newSandbox("o"), 1), api.CodeCanceled)
		_, err := s.GetSandbox(ctx, "x")
		wantCode(t, err, api.CodeCanceled)
		wantCode(t, s.Ping(ctx), api.CodeCanceled)
		ctx, cancel = context.WithTimeout(t.Context(), -1)
		defer cancel()
		_, _, err = s.ListSandboxes(ctx, store.SandboxQuery{Org: "o", Limit: 1})
		wantCode(t, err, api.CodeTimeout)
		must(t, s.CreateSandbox(t.Context(), newSandbox("o"), 1))
	})
}

// BenchmarkCreate is the SQL on the path of a create: one insert and one update.
func BenchmarkCreate(b *testing.B) {
	bench := func(b *testing.B, dsn string) {
		s := open(b, dsn)
		for range 900 { // as full as the default quota lets an org be
			must(b, s.CreateSandbox(b.Context(), newSandbox("o"), 1<<30))
		}
		var rows []*store.Sandbox
		for b.Loop() {
			row := newSandbox("o")
			row.Metadata = map[string]string{"k": "v"}
			must(b, s.CreateSandbox(b.Context(), row, 1<<30))
			row.Status = api.StatusRunning
			must(b, s.UpdateSandbox(b.Context(), row))
			if rows = append(rows, row); len(rows) == 100 {
				b.StopTimer()
				for _, r := range rows {
					must(b, s.ForgetSandboxes(b.Context(), []string{r.ID}))
				}
				rows = rows[:0]
				b.StartTimer()
			}
		}
	}
	b.Run("sqlite", func(b *testing.B) { bench(b, "sqlite:"+b.TempDir()+"/bench.db") })
	b.Run("postgres", func(b *testing.B) { bench(b, pgtestDSN(b)) })
}
