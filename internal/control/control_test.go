package control_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/store"
	"github.com/pandastack/pandastack/internal/store/pgtest"
)

var (
	alice   = auth.Identity{Org: "alice", KeyPrefix: "pds_aaaaaaaa"}
	mallory = auth.Identity{Org: "mallory", KeyPrefix: "pds_bbbbbbbb"}
)

// world is a service over a real store and a host.
type world struct {
	*control.Service
	t      testing.TB
	store  *store.Store
	host   *nativeHost
	limits control.Limits
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
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
}

func newWorld(t testing.TB, limits control.Limits) *world {
	return newWorldOn(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"), limits)
}

func newWorldOn(t testing.TB, dsn string, limits control.Limits) *world {
	t.Helper()
	st, err := store.Open(t.Context(), dsn, quiet)
	must(t, err)
	t.Cleanup(func() { must(t, st.Close()) })
	w := &world{t: t, store: st, host: newHost(t), limits: limits}
	w.restart()
	return w
}

// restart makes a new service over the same store and host, as after a crash.
func (w *world) restart() {
	w.Service = control.New(control.Deps{Store: w.store, Host: w.host, Log: quiet, Limits: w.limits})
}

// start runs the service until the test or stop ends it.
func (w *world) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	svc := w.Service
	wg.Go(func() {
		if err := svc.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) create(req api.CreateSandbox) api.Sandbox {
	w.t.Helper()
	b, err := w.Create(w.t.Context(), alice, req)
	must(w.t, err)
	return b
}

// eventually waits for something that happens by itself.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it never came about that", what)
}

func (w *world) gone(id string) func() bool {
	return func() bool {
		_, err := w.Get(w.t.Context(), alice, id)
		return api.CodeOf(err) == api.CodeSandboxNotFound && err != nil
	}
}

// history is the types of a sandbox's events in order.
func (w *world) history(id string) string {
	w.t.Helper()
	events, err := w.Events(w.t.Context(), alice, id, control.EventQuery{})
	must(w.t, err)
	var types []string
	for _, e := range events {
		types = append(types, strings.TrimPrefix(e.Type, "sandbox."))
	}
	return strings.Join(types, " ")
}

func cmd(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func (w *world) sh(id, line string) api.ExecResult {
	w.t.Helper()
	res, err := w.Exec(w.t.Context(), alice, id, api.Exec{Cmd: cmd(line), User: "root"})
	must(w.t, err)
	return res
}

func ptr[T any](v T) *T { return &v }

func TestLife(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"postgres": func(t *testing.T) string { return pgtest.DSN(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOn(t, dsn(t), control.Limits{})
			stop := w.start()
			b := w.create(api.CreateSandbox{Metadata: map[string]string{"k": "v"}, Env: map[string]string{"GREETING": "hi"}})
			if b.Status != api.StatusRunning || b.Template != "base" || b.Driver != "none" || b.Host != "native" || b.Metadata["k"] != "v" ||
				b.TTLSeconds != 3600 || b.ExpiresAt == nil || b.BootMode != api.BootRestore || b.MemoryMB != 512 || b.Persistent {
				t.Fatalf("%+v", b)
			}
			got, err := w.Get(t.Context(), alice, b.ID)
			must(t, err)
			if a, b := cmd(got), cmd(b); string(a) != string(b) {
				t.Fatalf("%s\nis not\n%s", a, b)
			}
			if res := w.sh(b.ID, `echo "$GREETING"`); res.Stdout != "hi\n" || res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			if m, err := w.Metrics(t.Context(), alice, b.ID); err != nil || m.PID == 0 {
				t.Fatal(m, err)
			}
			w.foreign(b.ID)
			must(t, w.Delete(t.Context(), alice, b.ID))
			if !w.gone(b.ID)() || w.host.count() != 0 {
				t.Fatal("something is left")
			}
			wantCode(t, w.Delete(t.Context(), alice, b.ID), api.CodeSandboxNotFound)
			_, err = w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("true")})
			wantCode(t, err, api.CodeSandboxNotFound)
			if h := w.history(b.ID); h != "running deleted" {
				t.Fatal(h)
			}
			stop()
			w.restart()
			if h := w.history(b.ID); h != "running deleted" {
				t.Fatal("after a restart:", h)
			}
		})
	}
}

// foreign checks that another org cannot tell a sandbox from one that is not.
func (w *world) foreign(id string) {
	w.t.Helper()
	ctx := w.t.Context()
	var errs []error
	for _, who := range []struct {
		auth.Identity
		id string
	}{{mallory, id}, {alice, api.NewID()}, {alice, "../x"}, {alice, ""}, {alice, strings.Repeat("x", 1000)}} {
		_, e1 := w.Get(ctx, who.Identity, who.id)
		_, e2 := w.Exec(ctx, who.Identity, who.id, api.Exec{Cmd: cmd("true")})
		_, e3 := w.Pause(ctx, who.Identity, who.id)
		_, e4 := w.SetLifecycle(ctx, who.Identity, who.id, api.Lifecycle{TTLSeconds: ptr(5)})
		_, e5 := w.Events(ctx, who.Identity, who.id, control.EventQuery{})
		_, e6 := w.Guest(ctx, who.Identity, who.id)
		_, e7 := w.Dial(ctx, who.Identity, who.id, 80)
		_, e8 := w.Metrics(ctx, who.Identity, who.id)
		_, e9 := w.Lifecycle(ctx, who.Identity, who.id)
		errs = append(errs, e1, e2, e3, e4, e5, e6, e7, e8, e9, w.Delete(ctx, who.Identity, who.id),
			w.FollowEvents(ctx, who.Identity, who.id, 0, func(api.Event) error { return nil }))
	}
	for _, err := range errs {
		wantCode(w.t, err, api.CodeSandboxNotFound)
	}
	if list, err := w.List(ctx, mallory, control.ListQuery{}); err != nil || len(list.Sandboxes) != 0 {
		w.t.Fatal(list, err)
	}
}

func TestReservedPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	_, err := w.Dial(t.Context(), alice, b.ID, api.InternalPort)
	wantCode(t, err, api.CodeForbidden)
	for _, port := range []int{0, -1, 65536} {
		_, err := w.Dial(t.Context(), alice, b.ID, port)
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	for i := range 5 {
		w.create(api.CreateSandbox{Metadata: map[string]string{"parity": []string{"even", "odd"}[i%2]}})
	}
	list, err := w.List(t.Context(), alice, control.ListQuery{Limit: 3})
	must(t, err)
	rest, err := w.List(t.Context(), alice, control.ListQuery{Limit: 3, Page: list.NextPage})
	must(t, err)
	if len(list.Sandboxes) != 3 || len(rest.Sandboxes) != 2 || rest.NextPage != "" || list.NextPage == "" {
		t.Fatal(len(list.Sandboxes), len(rest.Sandboxes))
	}
	odd, err := w.List(t.Context(), alice, control.ListQuery{Metadata: map[string]string{"parity": "odd"}, Status: []api.Status{api.StatusRunning}, Template: "base"})
	if len(odd.Sandboxes) != 2 || err != nil {
		t.Fatal(odd, err)
	}
	for _, q := range []control.ListQuery{{Limit: -1}, {Limit: 1001}, {Page: "garbage"}, {Status: []api.Status{"happy"}}, {Template: "a\x00"}} {
		_, err := w.List(t.Context(), alice, q)
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

func TestTemplatesAndReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	if tmpl, err := w.Template(t.Context(), alice, "base"); err != nil || tmpl.Status != "ready" {
		t.Fatal(tmpl, err)
	}
	_, err := w.Template(t.Context(), alice, "nosuch")
	wantCode(t, err, api.CodeTemplateNotFound)
	if h := w.Ready(t.Context()); h.Status != "ok" {
		t.Fatal(h)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{})
	for range 2 {
		got, err := w.Pause(t.Context(), alice, b.ID)
		if err != nil || got.Status != api.StatusPaused {
			t.Fatal(got, err)
		}
	}
	_, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("true")})
	wantCode(t, err, api.CodeSandboxState)
	if _, err := w.Metrics(t.Context(), alice, b.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := w.Resume(t.Context(), alice, b.ID)
		if err != nil || got.Status != api.StatusRunning {
			t.Fatal(got, err)
		}
	}
	if res := w.sh(b.ID, "echo back"); res.Stdout != "back\n" {
		t.Fatalf("%+v", res)
	}
	if h := w.history(b.ID); h != "running paused resumed" {
		t.Fatal(h)
	}
}

// A request to a sandbox that runs asks the database nothing.
func TestExecNeedsNoStore(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "a.db"), quiet)
	must(t, err)
	w := &world{t: t, store: st, host: newHost(t)}
	w.restart()
	b := w.create(api.CreateSandbox{})
	must(t, st.Close())
	if res := w.sh(b.ID, "echo on"); res.Stdout != "on\n" {
		t.Fatalf("%+v", res)
	}
	if h := w.Ready(t.Context()); h.Status != "failed" {
		t.Fatal(h)
	}
}

func TestFollowEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{})
	seen := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		done <- w.FollowEvents(t.Context(), alice, b.ID, 0, func(e api.Event) error {
			if !strings.HasPrefix(e.Type, "port.") { // of other programs on this machine
				seen <- e.Type
			}
			return nil
		})
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no", want)
		}
	}
	next(control.EventRunning)
	_, err := w.Pause(t.Context(), alice, b.ID)
	must(t, err)
	next(control.EventPaused)
	must(t, w.Delete(t.Context(), alice, b.ID))
	next(control.EventDeleted)
	must(t, <-done)
	// The past of one that is gone ends by itself.
	n := 0
	must(t, w.FollowEvents(t.Context(), alice, b.ID, 0, func(e api.Event) error {
		if !strings.HasPrefix(e.Type, "port.") {
			n++
		}
		return nil
	}))
	if n != 3 {
		t.Fatal(n)
	}
	// A client that leaves is let go.
	b = w.create(api.CreateSandbox{})
	ctx, cancel := context.WithCancel(t.Context())
	err = w.FollowEvents(ctx, alice, b.ID, 0, func(api.Event) error { cancel(); return nil })
	wantCode(t, err, api.CodeCanceled)
	events, err := w.Events(t.Context(), alice, b.ID, control.EventQuery{Since: time.Now().Add(time.Hour).UnixMicro()})
	if len(events) != 0 || err != nil {
		t.Fatal(events, err)
	}
}
