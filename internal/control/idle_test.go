package control_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

// staysAwake checks that a sandbox runs for some seconds more.
func (w *world) staysAwake(id string, d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if st := w.status(id)(); st != api.StatusRunning {
			w.t.Fatal("it is", st)
		}
	}
}

func (w *world) asleep(id string) func() bool {
	return func() bool { return w.status(id)() == api.StatusHibernated }
}

func TestIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	stop := w.start()
	short := w.create(api.CreateSandbox{IdleTimeout: 2})
	kept := w.create(api.CreateSandbox{Persistent: true, Idle: &api.IdlePolicy{TimeoutSeconds: 2}})
	never := w.create(api.CreateSandbox{Idle: &api.IdlePolicy{IgnoreStreams: true}})
	if short.Idle.TimeoutSeconds != 2 || never.Idle != nil {
		t.Fatal(short.Idle, never.Idle)
	}
	begun := time.Now()
	eventually(t, "it sleeps", w.asleep(short.ID))
	if early := time.Since(begun); early < 1500*time.Millisecond {
		t.Fatal("after", early)
	}
	eventually(t, "the persistent one sleeps", w.asleep(kept.ID))
	if w.status(never.ID)() != api.StatusRunning {
		t.Fatal("one without a policy sleeps")
	}
	events, err := w.Events(t.Context(), alice, short.ID, control.EventQuery{})
	if err != nil || events[1].Type != control.EventHibernated || events[1].Data["reason"] != "idle" {
		t.Fatal(events, err)
	}
	if res := w.sh(short.ID, "echo up"); res.Stdout != "up\n" {
		t.Fatalf("%+v", res)
	}
	eventually(t, "it sleeps again", w.asleep(short.ID))
	// After a restart of the server idleness counts anew.
	_, err = w.Wake(t.Context(), alice, short.ID)
	must(t, err)
	stop()
	time.Sleep(2500 * time.Millisecond)
	w.restart()
	w.start()
	w.staysAwake(short.ID, time.Second)
	eventually(t, "it sleeps", w.asleep(short.ID))
}

func TestUseKeepsAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{IdleTimeout: 2})
	open := w.Use(b.ID)
	w.staysAwake(b.ID, 5*time.Second)
	open()
	for range 10 { // now and then is enough
		w.Use(b.ID)()
		w.staysAwake(b.ID, 500*time.Millisecond)
	}
	eventually(t, "it sleeps", w.asleep(b.ID))

	// An open stream may be ignored, but not what it brings.
	_, err := w.SetLifecycle(t.Context(), alice, b.ID, api.Lifecycle{Idle: &api.IdlePolicy{TimeoutSeconds: 2, IgnoreStreams: true}})
	must(t, err)
	defer w.Use(b.ID)()
	_, err = w.Wake(t.Context(), alice, b.ID)
	must(t, err)
	for range 10 {
		w.Touch(b.ID)
		w.staysAwake(b.ID, 500*time.Millisecond)
	}
	eventually(t, "it sleeps", w.asleep(b.ID))
}

func TestBusyIsNotIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	busy := w.create(api.CreateSandbox{IdleTimeout: 3})
	ignored := w.create(api.CreateSandbox{Idle: &api.IdlePolicy{TimeoutSeconds: 3, IgnoreProcesses: true, IgnoreTraffic: true}})
	chatty := w.create(api.CreateSandbox{Idle: &api.IdlePolicy{TimeoutSeconds: 3, IgnoreProcesses: true}})
	client, err := w.Guest(t.Context(), alice, busy.ID)
	must(t, err)
	var pid int
	for _, b := range []api.Sandbox{busy, ignored} {
		// About a tenth of a CPU, in turns shorter than a look.
		res, err := w.Exec(t.Context(), alice, b.ID, api.Exec{User: "root", Background: true,
			Cmd: cmd("while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done")})
		must(t, err)
		if b.ID == busy.ID {
			pid = res.PID
		}
	}
	traffic, quiet := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for traffic.Err() == nil {
			w.host.mu.Lock()
			if w.host.disk.traffic == nil {
				w.host.disk.traffic = map[string]int64{}
			}
			w.host.disk.traffic[chatty.ID] += 2000
			w.host.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
	})
	defer wg.Wait()
	defer quiet()
	eventually(t, "what is ignored does not keep it awake", w.asleep(ignored.ID))
	w.staysAwake(busy.ID, 4*time.Second)
	w.staysAwake(chatty.ID, time.Second)
	must(t, client.KillTree(t.Context(), pid))
	quiet()
	eventually(t, "it sleeps", w.asleep(busy.ID))
	eventually(t, "it sleeps", w.asleep(chatty.ID))
}

func TestIdleSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{Idle: &api.IdlePolicy{IgnoreStreams: true}, IdleTimeout: 900})
	if b.Idle.TimeoutSeconds != 900 || !b.Idle.IgnoreStreams {
		t.Fatalf("%+v", b.Idle)
	}
	set := func(l api.Lifecycle) api.Lifecycle {
		t.Helper()
		l, err := w.SetLifecycle(t.Context(), alice, b.ID, l)
		must(t, err)
		return l
	}
	if l := set(api.Lifecycle{IdleSeconds: ptr(600)}); *l.IdleSeconds != 600 || !l.Idle.IgnoreStreams || *l.TTLSeconds != 3600 {
		t.Fatalf("%+v", l)
	}
	if l := set(api.Lifecycle{TTLSeconds: ptr(50)}); *l.IdleSeconds != 600 {
		t.Fatalf("%+v", l)
	}
	if l := set(api.Lifecycle{IdleSeconds: ptr(600), Idle: &api.IdlePolicy{TimeoutSeconds: 600, IgnoreTraffic: true}}); l.Idle.IgnoreStreams || !l.Idle.IgnoreTraffic {
		t.Fatalf("%+v", l)
	}
	for field, bad := range map[string]api.Lifecycle{
		"idle_seconds":         {IdleSeconds: ptr(5), Idle: &api.IdlePolicy{TimeoutSeconds: 6}},
		"idle.timeout_seconds": {Idle: &api.IdlePolicy{TimeoutSeconds: -6}},
		"idle.cpu_percent":     {IdleSeconds: ptr(1), Idle: &api.IdlePolicy{CPUPercent: 101}},
	} {
		_, err := w.SetLifecycle(t.Context(), alice, b.ID, bad)
		wantCode(t, err, api.CodeInvalidRequest)
		if got := api.AsError(err).Details["field"]; got != field {
			t.Errorf("the field is %v, want %s", got, field)
		}
	}
	if l := set(api.Lifecycle{IdleSeconds: ptr(2)}); *l.IdleSeconds != 2 {
		t.Fatalf("%+v", l)
	}
	eventually(t, "it sleeps", w.asleep(b.ID))
	if l := set(api.Lifecycle{IdleSeconds: ptr(0)}); l.IdleSeconds != nil || l.Idle != nil {
		t.Fatalf("%+v", l)
	}
	_, err := w.Wake(t.Context(), alice, b.ID)
	must(t, err)
	w.staysAwake(b.ID, 4*time.Second)
}

// Requests in use are never cut off by idleness, whenever they come.
func TestIdleBesideRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.start()
	b := w.create(api.CreateSandbox{Idle: &api.IdlePolicy{TimeoutSeconds: 1, IgnoreProcesses: true, IgnoreTraffic: true}})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for n := range 12 {
				// They come together, about when it would sleep.
				time.Sleep(950*time.Millisecond + time.Duration(n*13%12*10+i)*time.Millisecond)
				done := w.Use(b.ID)
				res, err := w.Exec(t.Context(), alice, b.ID, api.Exec{Cmd: cmd("sleep 0.05; echo served"), User: "root"})
				done()
				if err != nil || res.Stdout != "served\n" {
					t.Error(res, err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "it sleeps", w.asleep(b.ID))
	t.Log(w.host.disk.hibernations.Load(), "hibernations,", w.host.disk.wakes.Load(), "wakes")
}

// A request that comes after the last look at a sandbox, and before it sleeps,
// keeps it awake.
func TestUseAtTheLastMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	var begin sync.Once
	late := make(chan func(), 1)
	w.host.disk.onUsage = func(id string) {
		got, err := w.Get(context.Background(), alice, id)
		if err == nil && time.Since(got.CreatedAt) > 2*time.Second { // the look that would send it to sleep
			begin.Do(func() { late <- w.Use(id) })
		}
	}
	w.start()
	b := w.create(api.CreateSandbox{IdleTimeout: 2})
	done := <-late
	w.staysAwake(b.ID, 3*time.Second)
	done()
	eventually(t, "it sleeps", w.asleep(b.ID))
}

// BenchmarkUse is what every request pays.
func BenchmarkUse(b *testing.B) {
	s := control.New(control.Deps{})
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = api.NewID()
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			s.Use(ids[i%len(ids)])()
		}
	})
}
