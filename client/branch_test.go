package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// TestBranchCalls: each method sends what the API documents, once.
func TestBranchCalls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	no := false
	for name, tc := range map[string]struct {
		call   func(*client.Sandbox) error
		sent   string // method, path and body
		status int
		answer any
	}{
		"snapshot": {func(s *client.Sandbox) error {
			_, err := s.Snapshot(ctx, api.CreateSnapshot{Name: "warm", Memory: &no})
			return err
		}, `POST /snapshots {"name":"warm","memory":false}`, 201, api.Snapshot{}},
		"checkpoint": {func(s *client.Sandbox) error { _, err := s.Checkpoint(ctx, ""); return err },
			`POST /checkpoint {}`, 201, api.Snapshot{}},
		"checkpoints": {func(s *client.Sandbox) error { _, err := s.Checkpoints(ctx); return err },
			`GET /checkpoints `, 200, api.Timeline{}},
		"delete checkpoint": {func(s *client.Sandbox) error { return s.DeleteCheckpoint(ctx, "a") },
			`DELETE /checkpoints/a `, 204, nil},
		"restore": {func(s *client.Sandbox) error { return s.Restore(ctx, "a") },
			`POST /restore {"checkpoint":"a"}`, 200, api.Sandbox{}},
		"restore the newest": {func(s *client.Sandbox) error { return s.Restore(ctx, "") },
			`POST /restore {}`, 200, api.Sandbox{}},
		"fork": {func(s *client.Sandbox) error { _, err := s.Fork(ctx, api.Fork{Count: 7, Checkpoint: "a"}); return err },
			`POST /fork {"count":1,"checkpoint":"a"}`, 201, api.Sandbox{}},
		"fork tree": {func(s *client.Sandbox) error {
			_, err := s.ForkTree(ctx, 3, api.Fork{Env: map[string]string{"A": "b"}})
			return err
		}, `POST /fork-tree {"count":3,"env":{"A":"b"}}`, 201, api.ForkTree{}},
		"promote": {func(s *client.Sandbox) error {
			_, err := s.Promote(ctx, api.Promote{CleanupSiblings: true})
			return err
		},
			`POST /promote {"cleanup_siblings":true}`, 200, api.Promoted{}},
		"tree":      {func(s *client.Sandbox) error { _, err := s.Tree(ctx); return err }, `GET /tree `, 200, api.Tree{}},
		"hibernate": {func(s *client.Sandbox) error { return s.Hibernate(ctx) }, `POST /hibernate `, 200, api.Sandbox{}},
		"wake":      {func(s *client.Sandbox) error { return s.Wake(ctx) }, `POST /wake `, 200, api.Sandbox{}},
		"idle": {func(s *client.Sandbox) error { _, err := s.SetIdle(ctx, 1500*time.Millisecond); return err },
			`PATCH /lifecycle {"idle_seconds":2}`, 200, api.Lifecycle{}},
		"never idle": {func(s *client.Sandbox) error { _, err := s.SetIdle(ctx, 0); return err },
			`PATCH /lifecycle {"idle_seconds":0}`, 200, api.Lifecycle{}},
		"lifecycle": {func(s *client.Sandbox) error {
			_, err := s.SetLifecycle(ctx, api.Lifecycle{Idle: &api.IdlePolicy{IgnoreTraffic: true}, Checkpoints: &api.CheckpointPolicy{KeepLast: 3}})
			return err
		}, `PATCH /lifecycle {"idle":{"timeout_seconds":0,"ignore_traffic":true},"checkpoints":{"keep_last":3}}`, 200, api.Lifecycle{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent []string
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				sent = append(sent, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/x")+" "+string(body))
				if tc.answer == nil {
					w.WriteHeader(tc.status)
					return
				}
				answer(w, tc.status, tc.answer)
			})
			if err := tc.call(c.Sandboxes.Handle("x")); err != nil {
				t.Fatal(err)
			}
			if len(sent) != 1 || sent[0] != tc.sent {
				t.Errorf("sent %q, want %q", sent, tc.sent)
			}
		})
	}
}

// TestChildrenAreHandles: what a fork gives can be used as what a create gives.
func TestChildrenAreHandles(t *testing.T) {
	t.Parallel()
	child := func(id string) api.Sandbox { return api.Sandbox{ID: id, ParentID: "x", BootMode: api.BootFork} }
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/sandboxes/x/fork":
			answer(w, 201, child("a"))
		case "/v1/sandboxes/x/fork-tree":
			answer(w, 201, api.ForkTree{TreeID: "t", ParentID: "x", Children: []api.Sandbox{child("b"), child("c")}})
		default: // a file of one of them
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = io.WriteString(w, strings.Split(r.URL.Path, "/")[3])
		}
	})
	parent := c.Sandboxes.Handle("x")
	first, err := parent.Fork(t.Context(), api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := parent.ForkTree(t.Context(), 2, api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	if tree.ID != "t" || tree.ParentID != "x" || len(tree.Children) != 2 {
		t.Errorf("tree is %+v", tree)
	}
	for i, sb := range append(tree.Children, first) {
		want := []string{"b", "c", "a"}[i]
		data, err := sb.ReadFile(t.Context(), "/id")
		if err != nil || string(data) != want || sb.ID != want || sb.BootMode != api.BootFork {
			t.Errorf("child %d: file %q (%v), record %+v", i, data, err, sb.Sandbox)
		}
	}
	_, err = parent.ForkTree(t.Context(), 0, api.Fork{})
	wantCode(t, err, api.CodeInvalidRequest)
}

func TestRecordsFollowTheAnswer(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/sandboxes/x/hibernate":
			answer(w, 200, api.Sandbox{ID: "x", Status: api.StatusHibernated})
		case "/v1/sandboxes/x/restore":
			answer(w, 200, api.Sandbox{ID: "x", Status: api.StatusRunning, SnapshotID: "snap-1"})
		case "/v1/sandboxes/x/promote":
			answer(w, 200, api.Promoted{Sandbox: api.Sandbox{ID: "x", TreeID: "t"}, TreeID: "t", Deleted: []string{"y"}})
		}
	})
	sb := c.Sandboxes.Handle("x")
	if err := sb.Hibernate(t.Context()); err != nil || sb.Status != api.StatusHibernated {
		t.Errorf("%v, record %+v", err, sb.Sandbox)
	}
	if err := sb.Restore(t.Context(), ""); err != nil || sb.SnapshotID != "snap-1" {
		t.Errorf("%v, record %+v", err, sb.Sandbox)
	}
	p, err := sb.Promote(t.Context(), api.Promote{})
	if err != nil || sb.TreeID != "t" || !reflect.DeepEqual(p.Deleted, []string{"y"}) {
		t.Errorf("%+v %v, record %+v", p, err, sb.Sandbox)
	}
}

// TestNothingIsMadeTwice: a server that asks to come back is asked again only
// where that changes nothing.
func TestNothingIsMadeTwice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call  func(*client.Sandbox, *client.Snapshots) error
		tries int
	}{
		"fork": {func(s *client.Sandbox, _ *client.Snapshots) error {
			_, err := s.Fork(t.Context(), api.Fork{})
			return err
		}, 1},
		"snapshot": {func(s *client.Sandbox, _ *client.Snapshots) error {
			_, err := s.Snapshot(t.Context(), api.CreateSnapshot{})
			return err
		}, 1},
		"checkpoint": {func(s *client.Sandbox, _ *client.Snapshots) error {
			_, err := s.Checkpoint(t.Context(), "")
			return err
		}, 1},
		"restore": {func(s *client.Sandbox, _ *client.Snapshots) error { return s.Restore(t.Context(), "") }, 1},
		"import": {func(_ *client.Sandbox, s *client.Snapshots) error {
			_, err := s.Import(t.Context(), "", strings.NewReader("x"))
			return err
		}, 1},
		"tree":   {func(s *client.Sandbox, _ *client.Snapshots) error { _, err := s.Tree(t.Context()); return err }, 3},
		"get":    {func(_ *client.Sandbox, s *client.Snapshots) error { _, err := s.Get(t.Context(), "warm"); return err }, 3},
		"export": {func(_ *client.Sandbox, s *client.Snapshots) error { return s.Export(t.Context(), "warm", io.Discard) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				tries++
				answer(w, 503, api.Envelope{Error: api.Errorf(api.CodeSnapshotStore, "away")})
			})
			wantCode(t, tc.call(c.Sandboxes.Handle("x"), c.Snapshots), api.CodeSnapshotStore)
			if tries != tc.tries {
				t.Errorf("%d tries, want %d", tries, tc.tries)
			}
		})
	}
}

func TestCreateFromSnapshot(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		want := map[string]any{"from_snapshot": "warm", "idle": map[string]any{"timeout_seconds": 60.0}}
		if !reflect.DeepEqual(in, want) {
			t.Errorf("sent %v", in)
		}
		answer(w, 201, api.Sandbox{ID: "x", SnapshotID: "snap-1"})
	})
	sb, err := c.Sandboxes.Create(t.Context(), api.CreateSandbox{FromSnapshot: "warm", Idle: &api.IdlePolicy{TimeoutSeconds: 60}})
	if err != nil || sb.SnapshotID != "snap-1" {
		t.Errorf("%+v, %v", sb, err)
	}
}
