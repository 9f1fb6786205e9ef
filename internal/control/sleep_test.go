package control_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/host"
)

func (w *world) hibernate(id string) {
	w.t.Helper()
	b, err := w.Hibernate(w.t.Context(), alice, id)
	if err != nil || b.Status != api.StatusHibernated {
		w.t.Fatal(b.Status, err)
	}
}

func TestHibernateAndWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{TTLSeconds: ptr(600)})
	for range 2 {
		w.hibernate(b.ID)
	}
	_, err := w.Metrics(t.Context(), alice, b.ID)
	wantCode(t, err, api.CodeSandboxState)
	_, e1 := w.Pause(t.Context(), alice, b.ID)
	_, e2 := w.Resume(t.Context(), alice, b.ID)
	for _, err := range []error{e1, e2} {
		wantCode(t, err, api.CodeSandboxState)
	}
	if _, err := w.Events(t.Context(), alice, b.ID, control.EventQuery{}); err != nil {
		t.Fatal(err)
	}
	list, err := w.List(t.Context(), alice, control.ListQuery{Status: []api.Status{api.StatusHibernated}})
	if err != nil || len(list.Sandboxes) != 1 || w.host.disk.wakes.Load() != 0 || w.host.disk.hibernations.Load() != 1 {
		t.Fatal(list, err, "or looking at it woke it")
	}
	for range 2 {
		got, err := w.Wake(t.Context(), alice, b.ID)
		if err != nil || got.Status != api.StatusRunning || got.BootMode != api.BootWake || got.BootMS < 0 || !got.ExpiresAt.Equal(*b.ExpiresAt) {
			t.Fatal(got, err)
		}
	}
	if n := w.host.disk.wakes.Load(); n != 1 {
		t.Fatal(n, "wakes")
	}
	if h := w.history(b.ID); h != "running hibernated woken" {
		t.Fatal(h)
	}
	events, err := w.Events(t.Context(), alice, b.ID, control.EventQuery{})
	if err != nil || events[1].Data["reason"] != "request" {
		t.Fatal(events, err)
	}
	// A paused one can sleep as well, and comes back running.
	_, err = w.Pause(t.Context(), alice, b.ID)
	must(t, err)
	_, err = w.Wake(t.Context(), alice, b.ID)
	wantCode(t, err, api.CodeSandboxState)
	w.hibernate(b.ID)
	if res := w.sh(b.ID, "echo up"); res.Stdout != "up\n" {
		t.Fatalf("%+v", res)
	}
	for id, code := range map[string]api.Code{
		w.leave(api.StatusFailed, false, nil): api.CodeSandboxDied, w.leave(api.StatusDeleting, true, nil): api.CodeSandboxState, api.NewID(): api.CodeSandboxNotFound,
	} {
		_, e1 := w.Hibernate(t.Context(), alice, id)
		_, e2 := w.Wake(t.Context(), alice, id)
		wantCode(t, e1, code)
		wantCode(t, e2, code)
	}
}

// Every kind of request that needs the guest wakes it, also after a restart.
func TestRequestsWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	_, text, err := net.SplitHostPort(web.Listener.Addr().String())
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	for name, request := range map[string]func() error{
		"exec": func() error {
			_, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("true"), User: "root"})
			return err
		},
		"stream": func() error {
			return w.ExecStream(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("true"), User: "root"}, func(api.ExecEvent) error { return nil })
		},
		"guest": func() error { _, err := w.Guest(t.Context(), alice, b.ID); return err },
		"dial": func() error {
			conn, err := w.Dial(t.Context(), alice, b.ID, port)
			if err == nil {
				err = conn.Close()
			}
			return err
		},
		"logs": func() error {
			logs, err := w.Logs(t.Context(), alice, b.ID, guest.LogOptions{})
			if err == nil {
				logs.Close()
			}
			return err
		},
	} {
		for range 2 {
			w.hibernate(b.ID)
			if err := request(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if st := w.status(b.ID)(); st != api.StatusRunning {
				t.Error(name, "left it", st)
			}
			w.restart()
		}
	}
	_, err = w.Guest(t.Context(), mallory, b.ID)
	wantCode(t, err, api.CodeSandboxNotFound)
}

func TestManyRequestsShareOneWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	for round := range 3 {
		w.hibernate(b.ID)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				res, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd([]string{"true"}), User: "root"})
				if err != nil || res.ExitCode != 0 {
					t.Error(res, err)
				}
			})
		}
		wg.Wait()
		if n := w.host.disk.wakes.Load(); n != int64(round+1) {
			t.Fatal(n, "wakes after round", round)
		}
	}
}

// A wake that fails is everybody's answer, and the next request tries again.
func TestWakeFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	w.hibernate(b.ID)
	var waiting sync.WaitGroup
	begun, goOn := make(chan bool), make(chan bool)
	w.host.disk.beforeWake = func(context.Context, string) error {
		begun <- true
		<-goOn
		return api.Errorf(api.CodeSnapshotCorrupt, "damaged")
	}
	for range 20 {
		waiting.Go(func() {
			if _, err := w.Guest(t.Context(), alice, b.ID); api.CodeOf(err) != api.CodeSnapshotCorrupt || err == nil {
				t.Error(err)
			}
		})
	}
	<-begun
	// Who does not want to wait leaves; the wake goes on.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := w.Guest(ctx, alice, b.ID)
	wantCode(t, err, api.CodeTimeout)
	goOn <- true
	waiting.Wait()
	if n := w.host.disk.wakes.Load(); n != 1 {
		t.Fatal(n)
	}
	if st := w.status(b.ID)(); st != api.StatusHibernated {
		t.Fatal(st)
	}
	w.host.disk.beforeWake = nil
	if res := w.sh(b.ID, "echo up"); res.Stdout != "up\n" {
		t.Fatalf("%+v", res)
	}
}

// The wake does not end with the request that began it.
func TestWakeOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	w.hibernate(b.ID)
	begun, goOn := make(chan bool), make(chan bool)
	w.host.disk.beforeWake = func(ctx context.Context, _ string) error { begun <- true; <-goOn; return ctx.Err() }
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := w.Guest(ctx, alice, b.ID); first <- err }()
	<-begun
	second := make(chan error, 1)
	go func() { _, err := w.Guest(t.Context(), alice, b.ID); second <- err }()
	leave()
	wantCode(t, <-first, api.CodeCanceled)
	goOn <- true
	must(t, <-second)
	if n := w.host.disk.wakes.Load(); n != 1 {
		t.Fatal(n)
	}
}

// A request that arrives while the sandbox goes to sleep waits and wakes it; if
// going to sleep fails, nothing was cut off.
func TestRequestDuringHibernate(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"sleeps": nil, "fails": api.Errorf(api.CodeSnapshotStoreFull, "full")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, control.Limits{})
			b := w.create(api.CreateSandbox{})
			client, err := w.Guest(t.Context(), alice, b.ID)
			must(t, err)
			begun, goOn := make(chan bool), make(chan bool)
			w.host.disk.beforeHibernate = func(context.Context, string) error { begun <- true; <-goOn; return failure }
			slept := make(chan error, 1)
			ctx, leave := context.WithCancel(t.Context())
			go func() { _, err := w.Hibernate(ctx, alice, b.ID); slept <- err }()
			<-begun
			leave() // what has begun is finished
			served := make(chan error, 1)
			go func() {
				_, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("true"), User: "root"})
				served <- err
			}()
			select {
			case err := <-served:
				t.Fatal("it did not wait:", err)
			case <-time.After(200 * time.Millisecond):
			}
			goOn <- true
			if err := <-slept; api.CodeOf(err) != api.CodeOf(failure) {
				t.Fatal(err)
			}
			must(t, <-served)
			again, err := w.Guest(t.Context(), alice, b.ID)
			must(t, err)
			if (again == client) != (failure != nil) || w.host.disk.wakes.Load() != map[bool]int64{true: 0, false: 1}[failure != nil] {
				t.Fatal("same connections:", again == client, "wakes:", w.host.disk.wakes.Load())
			}
		})
	}
}

func TestSleepersAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	asleep := w.leave(api.StatusHibernated, true, nil)
	must(t, w.host.Hibernate(t.Context(), asleep))
	fellAsleep := w.leave(api.StatusRunning, true, nil) // and that was not written
	must(t, w.host.Hibernate(t.Context(), fellAsleep))
	woke := w.leave(api.StatusHibernated, true, nil) // and that was not written
	frozen := w.leave(api.StatusHibernated, true, nil)
	must(t, w.host.Pause(t.Context(), frozen))
	lost := w.leave(api.StatusHibernated, false, nil)
	w.start()
	for id, want := range map[string]api.Status{
		asleep: api.StatusHibernated, fellAsleep: api.StatusHibernated, woke: api.StatusRunning, frozen: api.StatusPaused, lost: api.StatusFailed,
	} {
		eventually(t, "a sandbox is "+string(want), func() bool { return w.status(id)() == want })
	}
	for _, id := range []string{asleep, fellAsleep, woke} {
		if res := w.sh(id, "echo whole"); res.Stdout != "whole\n" {
			t.Fatalf("%+v", res)
		}
	}
	if got, err := w.Get(t.Context(), alice, woke); err != nil || got.GuestIP == "" || got.MemoryMB == 0 {
		t.Fatalf("%+v %v", got, err)
	}
}

// The host may put a sandbox back on disk that did not come up whole.
func TestHostPutsItBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{})
	w.hibernate(b.ID)
	_, err := w.Wake(t.Context(), alice, b.ID)
	must(t, err)
	eventually(t, "the service follows the host", func() bool {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		return len(w.host.watchers) == 1
	})
	tell := func(state host.State) {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		for c := range w.host.watchers {
			c <- host.Change{SandboxID: b.ID, State: state}
		}
	}
	// News that are older than the state of things change nothing.
	tell(host.StateHibernated)
	tell(host.StateFailed)
	must(t, w.host.Hibernate(t.Context(), b.ID))
	tell(host.StateHibernated)
	eventually(t, "it is asleep", func() bool { return w.status(b.ID)() == api.StatusHibernated })
	if res := w.sh(b.ID, "echo whole"); res.Stdout != "whole\n" {
		t.Fatalf("%+v", res)
	}
	if h := w.history(b.ID); h != "running hibernated woken hibernated woken" {
		t.Fatal(h)
	}
}

func TestTTLWhileAsleep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{SandboxesPerOrg: 4})
	w.start()
	asleep := w.create(api.CreateSandbox{TTLSeconds: ptr(3)})
	w.hibernate(asleep.ID)
	frozen := w.create(api.CreateSandbox{TTLSeconds: ptr(3)})
	_, err := w.Pause(t.Context(), alice, frozen.ID)
	must(t, err)
	woken := w.create(api.CreateSandbox{TTLSeconds: ptr(3)})
	w.hibernate(woken.ID)
	kept := w.create(api.CreateSandbox{Persistent: true})
	w.hibernate(kept.ID)
	_, err = w.Create(t.Context(), alice, api.CreateSandbox{}) // the sleeping count
	wantCode(t, err, api.CodeQuotaSandboxes)
	if b, err := w.Wake(t.Context(), alice, woken.ID); err != nil || !b.ExpiresAt.Equal(*woken.ExpiresAt) {
		t.Fatal(b, err)
	}
	for _, b := range []api.Sandbox{asleep, frozen, woken} {
		eventually(t, "it has expired", w.gone(b.ID))
		if late := time.Since(*b.ExpiresAt); late < 0 || late > 15*time.Second {
			t.Fatal(late)
		}
	}
	if h := w.history(asleep.ID); h != "running hibernated expired" {
		t.Fatal(h)
	}
	if st := w.status(kept.ID)(); st != api.StatusHibernated {
		t.Fatal(st)
	}
	// Setting a time to live needs it not awake, and counts from then.
	l, err := w.SetLifecycle(t.Context(), alice, kept.ID, api.Lifecycle{TTLSeconds: ptr(2)})
	if err != nil || time.Until(*l.ExpiresAt) > 2*time.Second || w.host.disk.wakes.Load() != 1 {
		t.Fatal(l, err)
	}
	eventually(t, "it has expired", w.gone(kept.ID))
}
