package control_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
)

func (w *world) fork(id string, req api.Fork) api.ForkTree {
	w.t.Helper()
	tree, err := w.Fork(w.t.Context(), alice, id, req)
	must(w.t, err)
	return tree
}

// only checks that nothing but these sandboxes is left, in any state.
func (w *world) only(ids ...string) {
	w.t.Helper()
	rows, err := w.store.AllSandboxes(w.t.Context())
	must(w.t, err)
	var got []string
	for _, row := range rows {
		got = append(got, row.ID)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) || w.host.count() != len(ids) {
		w.t.Fatalf("rows %v, %d on the host, want %v", got, w.host.count(), ids)
	}
}

func TestFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{
		Env: map[string]string{"A": "parent", "B": "parent"}, Metadata: map[string]string{"k": "v"}, TTLSeconds: ptr(500), MemoryMB: 300,
		Idle: &api.IdlePolicy{TimeoutSeconds: 900, IgnoreStreams: true}, Checkpoints: &api.CheckpointPolicy{KeepLast: 5},
	})
	tree := w.fork(b.ID, api.Fork{Env: map[string]string{"B": "child"}})
	if tree.ParentID != b.ID || len(tree.Children) != 1 || tree.TreeID == "" {
		t.Fatalf("%+v", tree)
	}
	c := tree.Children[0]
	if c.ParentID != b.ID || c.TreeID != tree.TreeID || c.SnapshotID != "" || c.BootMode != api.BootFork || c.Status != api.StatusRunning ||
		c.Metadata["k"] != "v" || c.TTLSeconds != 500 || c.MemoryMB != 300 || c.ID == b.ID || *c.Idle != *b.Idle || c.Template != "base" {
		t.Fatalf("%+v", c)
	}
	if left := time.Until(*c.ExpiresAt); left < 400*time.Second || left > 501*time.Second {
		t.Fatal(left)
	}
	if l, err := w.Lifecycle(t.Context(), alice, c.ID); err != nil || l.Checkpoints.KeepLast != 5 {
		t.Fatal(l, err)
	}
	if res := w.sh(c.ID, "echo $A $B"); res.Stdout != "parent child\n" {
		t.Fatalf("%+v", res)
	}
	if res := w.sh(b.ID, "echo $A $B"); res.Stdout != "parent parent\n" {
		t.Fatalf("%+v", res)
	}
	if h := w.history(b.ID) + ", " + w.history(c.ID); h != "running forked, running" {
		t.Fatal(h)
	}

	kept := w.fork(b.ID, api.Fork{Persistent: ptr(true), Metadata: map[string]string{"x": "y"}, CPU: 0.25, MemoryMB: 128}).Children[0]
	if !kept.Persistent || kept.ExpiresAt != nil || len(kept.Metadata) != 1 || kept.Metadata["x"] != "y" || kept.CPU != 0.25 || kept.MemoryMB != 128 {
		t.Fatalf("%+v", kept)
	}
	list, err := w.List(t.Context(), alice, control.ListQuery{Metadata: map[string]string{"x": "y"}})
	if err != nil || len(list.Sandboxes) != 1 {
		t.Fatal(list, err)
	}
	for want, req := range map[[2]any]api.Fork{
		{true, 0}: {}, {false, 3600}: {Persistent: ptr(false)}, {false, 60}: {TTLSeconds: ptr(60)},
		{false, 61}: {TTLSeconds: ptr(61), Persistent: ptr(false)},
	} {
		if g := w.fork(kept.ID, req).Children[0]; g.Persistent != want[0] || g.TTLSeconds != want[1] {
			t.Errorf("%+v, want %v", g, want)
		}
	}
	if empty := w.fork(b.ID, api.Fork{Metadata: map[string]string{}}).Children[0]; len(empty.Metadata) != 0 {
		t.Fatalf("%+v", empty)
	}
}

func TestForkRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{SandboxesPerOrg: 5})
	b := w.create(api.CreateSandbox{})
	for name, c := range map[string]struct {
		req  api.Fork
		code api.Code
	}{
		"many":           {api.Fork{Count: 10000}, api.CodeInvalidRequest},
		"negative":       {api.Fork{Count: -1}, api.CodeInvalidRequest},
		"quota":          {api.Fork{Count: 6}, api.CodeQuotaSandboxes},
		"rest of quota":  {api.Fork{Count: 5}, api.CodeQuotaSandboxes},
		"ttl":            {api.Fork{TTLSeconds: ptr(0)}, api.CodeInvalidRequest},
		"both lifetimes": {api.Fork{TTLSeconds: ptr(5), Persistent: ptr(true)}, api.CodeInvalidRequest},
		"env":            {api.Fork{Env: map[string]string{"": "x"}}, api.CodeInvalidRequest},
		"metadata":       {api.Fork{Metadata: map[string]string{"": "x"}}, api.CodeInvalidRequest},
		"memory":         {api.Fork{MemoryMB: -1}, api.CodeInvalidRequest},
		"cpu":            {api.Fork{CPU: 1e9}, api.CodeInvalidRequest},
		"checkpoint":     {api.Fork{Checkpoint: "nosuch"}, api.CodeSnapshotNotFound},
		"checkpoint id":  {api.Fork{Checkpoint: api.NewSnapshotID()}, api.CodeSnapshotNotFound},
		"odd checkpoint": {api.Fork{Checkpoint: "snap-"}, api.CodeSnapshotNotFound},
	} {
		_, err := w.Fork(t.Context(), alice, b.ID, c.req)
		if err == nil || api.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.host.disk.forks.Load(); n != 0 {
		t.Fatal(n, "forks were asked for")
	}
	w.only(b.ID)
	if tree := w.fork(b.ID, api.Fork{Count: 4}); len(tree.Children) != 4 {
		t.Fatalf("%+v", tree)
	}
	if n := w.host.disk.forks.Load(); n != 1 {
		t.Fatal(n, "captures for one fork")
	}
	if h := w.history(b.ID); h != "running forked fork_tree.completed" {
		t.Fatal(h)
	}
}

// A fork that fails, whose client leaves or one of whose children is deleted
// leaves no child behind.
func TestForkIsAllOrNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hook func(w *world, leave func()) func(context.Context, []host.Spec) error
		code api.Code
	}{
		"host": {func(*world, func()) func(context.Context, []host.Spec) error {
			return func(context.Context, []host.Spec) error { return api.Errorf(api.CodeCapacity, "full") }
		}, api.CodeCapacity},
		"client": {func(_ *world, leave func()) func(context.Context, []host.Spec) error {
			return func(context.Context, []host.Spec) error { leave(); return nil }
		}, ""},
		"delete": {func(w *world, _ func()) func(context.Context, []host.Spec) error {
			return func(ctx context.Context, specs []host.Spec) error {
				go func() {
					if err := w.Delete(w.t.Context(), alice, specs[1].ID); err != nil {
						w.t.Error(err)
					}
				}()
				<-ctx.Done()
				return ctx.Err()
			}
		}, api.CodeSandboxNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, control.Limits{})
			b := w.create(api.CreateSandbox{})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			w.host.disk.beforeFork = c.hook(w, leave)
			_, err := w.Fork(ctx, alice, b.ID, api.Fork{Count: 3})
			if err == nil || c.code != "" && api.CodeOf(err) != c.code {
				t.Fatal(err)
			}
			w.only(b.ID)
			if tree, err := w.Tree(t.Context(), alice, b.ID); err != nil || len(tree.Nodes) != 1 {
				t.Fatal(tree, err)
			}
			w.host.disk.beforeFork = nil
			w.fork(b.ID, api.Fork{Count: 2})
		})
	}
}

func TestForkFromCheckpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{Env: map[string]string{"A": "then"}, MemoryMB: 300})
	point, err := w.Checkpoint(t.Context(), alice, b.ID, api.Checkpoint{Name: "here"})
	must(t, err)
	_, err = w.Hibernate(t.Context(), alice, b.ID)
	must(t, err)
	tree := w.fork(b.ID, api.Fork{Checkpoint: "here", Count: 3, CPU: 0.5})
	for _, c := range tree.Children {
		if c.ParentID != b.ID || c.TreeID != tree.TreeID || c.SnapshotID != point.ID || c.MemoryMB != 300 || c.CPU != 0.5 {
			t.Fatalf("%+v", c)
		}
		if res := w.sh(c.ID, "echo $A"); res.Stdout != "then\n" {
			t.Fatalf("%+v", res)
		}
	}
	if w.status(b.ID)() != api.StatusHibernated || w.host.disk.wakes.Load() != 0 || w.host.disk.forks.Load() != 0 {
		t.Fatal("the parent was woken to branch from a checkpoint")
	}
	ids := []string{b.ID}
	for _, c := range tree.Children {
		ids = append(ids, c.ID)
	}
	n := 0
	w.host.beforeCreate = func(context.Context, host.Spec) error {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		if n++; n == 3 {
			return api.Errorf(api.CodeCapacity, "full")
		}
		return nil
	}
	_, err = w.Fork(t.Context(), alice, b.ID, api.Fork{Checkpoint: point.ID, Count: 4})
	wantCode(t, err, api.CodeCapacity)
	w.only(ids...)
	w.host.beforeCreate = nil
	must(t, w.DeleteSnapshot(t.Context(), alice, point.ID)) // though it has children
	if res := w.sh(tree.Children[0].ID, "echo on"); res.Stdout != "on\n" {
		t.Fatalf("%+v", res)
	}
	// Forking from now wakes.
	w.fork(b.ID, api.Fork{})
	if w.status(b.ID)() != api.StatusRunning {
		t.Fatal(w.status(b.ID)())
	}
}

func TestPromoteAndTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	root := w.create(api.CreateSandbox{})
	tree := w.fork(root.ID, api.Fork{Count: 4})
	best, sibling := tree.Children[1], tree.Children[2]
	other := w.fork(root.ID, api.Fork{}).Children[0]
	grandchild := w.fork(sibling.ID, api.Fork{}).Children[0]
	must(t, w.Delete(t.Context(), alice, tree.Children[0].ID))

	for _, c := range []struct {
		id  string
		req api.Promote
	}{{root.ID, api.Promote{}}, {best.ID, api.Promote{TreeID: other.TreeID}}} {
		_, err := w.Promote(t.Context(), alice, c.id, c.req)
		wantCode(t, err, api.CodeInvalidRequest)
	}
	p, err := w.Promote(t.Context(), alice, best.ID, api.Promote{})
	if err != nil || len(p.Deleted) != 0 || p.Deleted == nil || p.TreeID != tree.TreeID {
		t.Fatal(p, err)
	}
	_, err = w.Hibernate(t.Context(), alice, tree.Children[3].ID)
	must(t, err)
	p, err = w.Promote(t.Context(), alice, best.ID, api.Promote{TreeID: tree.TreeID, CleanupSiblings: true})
	must(t, err)
	want := []string{sibling.ID, tree.Children[3].ID}
	slices.Sort(want)
	if p.Sandbox.ID != best.ID || !slices.Equal(p.Deleted, want) {
		t.Fatalf("%+v, want %v", p, want)
	}
	w.only(root.ID, best.ID, other.ID, grandchild.ID)
	if h := w.history(best.ID); h != "running fork_tree.promoted fork_tree.promoted" {
		t.Fatal(h)
	}
	must(t, w.Delete(t.Context(), alice, root.ID))
	for _, id := range []string{root.ID, best.ID, grandchild.ID, sibling.ID} {
		got, err := w.Tree(t.Context(), alice, id)
		must(t, err)
		if got.RootID != root.ID || len(got.Nodes) != 7 || got.Nodes[0].ID != root.ID {
			t.Fatalf("%+v", got)
		}
		seen := map[string]bool{"": true}
		for _, n := range got.Nodes {
			if !seen[n.ParentID] {
				t.Fatal("a child stands before its parent")
			}
			seen[n.ID] = true
			lives := n.ID == best.ID || n.ID == other.ID || n.ID == grandchild.ID
			if n.Promoted != (n.ID == best.ID) || (n.Status == api.StatusRunning) != lives || (n.Status == api.StatusDeleted) == lives || (n.EndedAt == nil) != lives {
				t.Fatalf("%+v", n)
			}
		}
	}
	_, err = w.Tree(t.Context(), mallory, best.ID)
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = w.Tree(t.Context(), alice, "x")
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = w.Promote(t.Context(), alice, sibling.ID, api.Promote{})
	wantCode(t, err, api.CodeSandboxNotFound)
}

// A fork that a crash cut off is undone; its parent is not touched.
func TestForkAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	parent := w.leave(api.StatusRunning, true, nil)
	asChild := func(b *store.Sandbox) { b.ParentID, b.TreeID = parent, "tree" }
	for i := range 4 {
		w.leave(api.StatusCreating, i%2 == 0, asChild)
	}
	w.start()
	eventually(t, "the children are gone", func() bool {
		rows, err := w.store.AllSandboxes(t.Context())
		return err == nil && len(rows) == 1 && w.host.count() == 1
	})
	if res := w.sh(parent, "echo on"); res.Stdout != "on\n" {
		t.Fatalf("%+v", res)
	}
}

// Forks of one sandbox, deletes of its children and comparisons do not disturb
// each other.
func TestForkBesideOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{})
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			tree, err := w.Fork(t.Context(), alice, b.ID, api.Fork{Count: 2})
			if err == nil {
				err = w.Delete(t.Context(), alice, tree.Children[0].ID)
			}
			if err == nil {
				var res api.ExecResult
				res, err = w.Exec(t.Context(), alice, tree.Children[1].ID, api.Exec{Cmd: cmd("echo here"), User: "root"})
				if err == nil && res.Stdout != "here\n" {
					err = fmt.Errorf("%+v", res)
				}
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		must(t, <-errs)
	}
	if n := w.host.count(); n != 1+cap(errs) {
		t.Fatal(n)
	}
}
