package store_test

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

func newSnapshot(org string, kind api.SnapshotKind, sandbox, name string) *store.Snapshot {
	return &store.Snapshot{ID: api.NewSnapshotID(), Org: org, Kind: kind, SandboxID: sandbox, Name: name, Template: "base",
		Driver: "gvisor", Host: "h", Status: store.SnapshotReady, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
}

func TestSnapshotRow(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		n := newSnapshot("o", api.KindSnapshot, "box", "name")
		n.Status, n.Metadata, n.ParentID, n.Memory = store.SnapshotCreating, map[string]string{"k": "ä'"}, "snap-0", true
		must(t, s.CreateSnapshot(ctx, n))
		n.Status, n.SizeBytes, n.StoredBytes, n.PauseMS = store.SnapshotReady, 1<<40, 1<<30, 12.345
		n.Spec = store.Spec{CPU: 0.5, MemoryMB: 256, DiskMB: 512}
		n.ExpiresAt = n.CreatedAt.Add(time.Hour)
		must(t, s.UpdateSnapshot(ctx, n))
		got, err := s.GetSnapshot(ctx, n.ID)
		must(t, err)
		if !reflect.DeepEqual(&got, n) {
			t.Fatalf("\n%+v is not\n%+v", got, n)
		}
		if got, err := s.SnapshotByName(ctx, "o", "name"); err != nil || got.ID != n.ID {
			t.Fatal(got, err)
		}
		must(t, s.SetSnapshotStatus(ctx, n.ID, store.SnapshotDeleting))
		if got, err := s.GetSnapshot(ctx, n.ID); err != nil || got.Status != store.SnapshotDeleting {
			t.Fatal(got, err)
		}
		must(t, s.DeleteSnapshot(ctx, n.ID))
		must(t, s.DeleteSnapshot(ctx, n.ID))
		_, err1 := s.GetSnapshot(ctx, n.ID)
		_, err2 := s.SnapshotByName(ctx, "o", "")
		_, err3 := s.CheckpointByName(ctx, "box", "")
		_, err4 := s.NewestCheckpoint(ctx, "box")
		_, err5 := s.NewestDiskSnapshot(ctx, "o", "box")
		for _, err := range []error{err1, err2, err3, err4, err5, s.UpdateSnapshot(ctx, n), s.SetSnapshotStatus(ctx, n.ID, "x")} {
			if !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
	})
}

func TestSnapshotNames(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		for _, c := range []struct {
			org     string
			kind    api.SnapshotKind
			sandbox string
			name    string
			taken   bool
		}{
			{"o", api.KindSnapshot, "a", "n", false},
			{"o", api.KindSnapshot, "b", "n", true},
			{"p", api.KindSnapshot, "c", "n", false},
			{"o", api.KindSnapshot, "a", "", false},
			{"o", api.KindSnapshot, "a", "", false},
			{"o", api.KindCheckpoint, "a", "n", false},
			{"o", api.KindCheckpoint, "a", "n", true},
			{"o", api.KindCheckpoint, "b", "n", false},
			{"o", api.KindCheckpoint, "a", "", false},
			{"o", api.KindCheckpoint, "a", "", false},
		} {
			err := s.CreateSnapshot(ctx, newSnapshot(c.org, c.kind, c.sandbox, c.name))
			if errors.Is(err, store.ErrConflict) != c.taken || !c.taken && err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}

func TestListSnapshots(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		at := time.Now().UTC().Truncate(time.Second)
		for i := range 9 {
			n := newSnapshot("o", api.KindSnapshot, "box", "")
			n.CreatedAt = at.Add(time.Duration(i/3) * time.Second)
			if i == 4 {
				n.Kind = api.KindCheckpoint
			}
			if i == 5 {
				n.SandboxID = "other"
			}
			if i == 6 {
				n.Status = store.SnapshotCreating
			}
			must(t, s.CreateSnapshot(ctx, n))
		}
		must(t, s.CreateSnapshot(ctx, newSnapshot("foreign", api.KindSnapshot, "box", "")))
		seen := map[string]bool{}
		q := store.SnapshotQuery{Org: "o", Limit: 3}
		for pages := 1; ; pages++ {
			page, next, err := s.ListSnapshots(ctx, q)
			must(t, err)
			for _, n := range page {
				seen[n.ID] = true
			}
			if q.Page = next; next == "" {
				if pages != 3 || len(seen) != 8 {
					t.Fatal(pages, len(seen))
				}
				break
			}
		}
		for want, q := range map[int]store.SnapshotQuery{7: {SandboxID: "box"}, 1: {Kind: api.KindCheckpoint}, 6: {SandboxID: "box", Kind: api.KindSnapshot}} {
			q.Org, q.Limit = "o", 100
			if page, _, err := s.ListSnapshots(ctx, q); len(page) != want || err != nil {
				t.Errorf("%+v: %d, %v", q, len(page), err)
			}
		}
		_, _, err := s.ListSnapshots(ctx, store.SnapshotQuery{Org: "o", Limit: 1, Page: strings.Repeat("A", 300)})
		wantCode(t, err, api.CodeInvalidRequest)
		if all, err := s.AllSnapshots(ctx); len(all) != 10 || err != nil {
			t.Fatal(len(all), err)
		}
	})
}

func TestCheckpointExpiry(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		b := newSandbox("o")
		must(t, s.CreateSandbox(ctx, b, 5))
		var made []*store.Snapshot
		at := b.CreatedAt
		for i := range 3 {
			n := newSnapshot("o", api.KindCheckpoint, b.ID, "")
			n.CreatedAt, n.Status = at.Add(time.Duration(i)*time.Second), store.SnapshotCreating
			must(t, s.CreateSnapshot(ctx, n))
			n.Status = store.SnapshotReady
			must(t, s.UpdateCheckpoint(ctx, n))
			made = append(made, n)
		}
		if got, err := s.GetSandbox(ctx, b.ID); err != nil || got.SnapshotID != made[2].ID {
			t.Fatal(got, err)
		}
		if next, err := s.NextCheckpointExpiry(ctx); err != nil || !next.IsZero() {
			t.Fatal(next, err)
		}
		must(t, s.SetCheckpointAge(ctx, b.ID, time.Minute))
		if next, err := s.NextCheckpointExpiry(ctx); err != nil || !next.Equal(at.Add(time.Minute)) {
			t.Fatal(next, err)
		}
		// The one that the sandbox goes on from is never among them.
		if over, err := s.ExpiredCheckpoints(ctx, at.Add(time.Hour), 10); err != nil || len(over) != 2 {
			t.Fatal(over, err)
		}
		if over, err := s.ExpiredCheckpoints(ctx, at.Add(time.Minute), 10); err != nil || len(over) != 1 || over[0].ID != made[0].ID {
			t.Fatal(over, err)
		}
		must(t, s.SetCheckpointAge(ctx, b.ID, 0))
		if next, err := s.NextCheckpointExpiry(ctx); err != nil || !next.IsZero() {
			t.Fatal(next, err)
		}
		newest, err := s.NewestCheckpoint(ctx, b.ID)
		if err != nil || newest.ID != made[2].ID {
			t.Fatal(newest, err)
		}
		if list, err := s.Checkpoints(ctx, b.ID); err != nil || len(list) != 3 || list[0].ID != made[0].ID {
			t.Fatal(list, err)
		}
	})
}

func child(parent *store.Sandbox, tree string) *store.Sandbox {
	c := newSandbox(parent.Org)
	c.ParentID, c.TreeID = parent.ID, tree
	return c
}

func TestLineage(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, ctx := open(t, dsn), t.Context()
		root, lone := newSandbox("o"), newSandbox("o")
		must(t, s.CreateSandbox(ctx, root, 100))
		must(t, s.CreateSandbox(ctx, lone, 100))
		a, b := child(root, "t1"), child(root, "t1")
		must(t, s.CreateSandboxes(ctx, []*store.Sandbox{a, b}, 100))
		grandchild := child(b, "t2")
		must(t, s.CreateSandbox(ctx, grandchild, 100))
		undone := child(b, "t3")
		must(t, s.CreateSandbox(ctx, undone, 100))
		must(t, s.ForgetSandboxes(ctx, []string{undone.ID}))

		must(t, s.Promote(ctx, "o", "t1", a.ID))
		must(t, s.Promote(ctx, "o", "t1", b.ID))
		if err := s.Promote(ctx, "foreign", "t1", b.ID); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		if siblings, err := s.Siblings(ctx, "o", "t1"); err != nil || len(siblings) != 2 {
			t.Fatal(siblings, err)
		}
		if siblings, err := s.Siblings(ctx, "o", ""); err != nil || len(siblings) != 0 {
			t.Fatal(siblings, err)
		}
		ended := time.Now().UTC().Truncate(time.Microsecond)
		must(t, s.DeleteSandbox(ctx, root.ID, ended))
		must(t, s.DeleteSandbox(ctx, a.ID, ended))
		for _, of := range []string{root.ID, a.ID, grandchild.ID} {
			tree, err := s.LineageOf(ctx, "o", of)
			if err != nil || len(tree) != 4 || tree[0].SandboxID != root.ID || !tree[0].EndedAt.Equal(ended) || tree[0].Status != "" {
				t.Fatalf("%+v %v", tree, err)
			}
			for _, l := range tree {
				if l.Promoted != (l.SandboxID == b.ID) || l.RootID != root.ID || (l.Status == "") == l.EndedAt.IsZero() {
					t.Fatalf("%+v", l)
				}
			}
		}
		for _, of := range [][2]string{{"foreign", root.ID}, {"o", api.NewID()}, {"o", undone.ID}} {
			if _, err := s.LineageOf(ctx, of[0], of[1]); !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
		// Ancestors of a living one stay; what ended without descendants goes.
		if n, err := s.PruneLineage(ctx, ended); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := s.PruneLineage(ctx, ended.Add(time.Second)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		must(t, s.DeleteSandbox(ctx, b.ID, ended))
		must(t, s.DeleteSandbox(ctx, grandchild.ID, ended))
		if n, err := s.PruneLineage(ctx, ended.Add(time.Second)); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if tree, err := s.LineageOf(ctx, "o", lone.ID); err != nil || len(tree) != 1 {
			t.Fatal(tree, err)
		}
	})
}

// Several at once are counted together, also beside others.
func TestQuotaOfSeveral(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, dsn string) {
		s, other := open(t, dsn), open(t, dsn)
		const quota = 10
		var made, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				st := s
				if i%2 == 1 {
					st = other
				}
				rows := []*store.Sandbox{newSandbox("o"), newSandbox("o"), newSandbox("o")}
				switch err := st.CreateSandboxes(t.Context(), rows, quota); {
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
		all, err := s.AllSandboxes(t.Context())
		if made.Load() != 3 || refused.Load() != 5 || len(all) != 9 || err != nil {
			t.Fatal(made.Load(), refused.Load(), len(all), err)
		}
		all[0].Status, all[1].Status = api.StatusHibernated, api.StatusHibernated
		must(t, s.UpdateSandboxes(t.Context(), []*store.Sandbox{&all[0], &all[1]}))
		wantCode(t, s.CreateSandboxes(t.Context(), []*store.Sandbox{newSandbox("o"), newSandbox("o")}, quota), api.CodeQuotaSandboxes)
		gone := newSandbox("o")
		all[0].Status = api.StatusRunning
		if err := s.UpdateSandboxes(t.Context(), []*store.Sandbox{&all[0], gone}); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		if got, err := s.GetSandbox(t.Context(), all[0].ID); err != nil || got.Status != api.StatusHibernated {
			t.Fatal("a part was written:", got.Status, err)
		}
	})
}
