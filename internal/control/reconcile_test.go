package control_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
)

// leave puts the store and the host into the state that a crash would leave.
func (w *world) leave(status api.Status, onHost bool, change func(*store.Sandbox)) string {
	w.t.Helper()
	at := time.Now().UTC().Truncate(time.Microsecond)
	row := &store.Sandbox{ID: api.NewID(), Org: alice.Org, Template: "base", Status: status, Token: "secret", TTLSeconds: 3600, CreatedAt: at}
	row.ExpiresAt = at.Add(time.Hour)
	if change != nil {
		change(row)
	}
	must(w.t, w.store.CreateSandbox(w.t.Context(), row, 1000))
	if onHost {
		_, err := w.host.Create(w.t.Context(), host.Spec{ID: row.ID, Template: "base", Token: row.Token})
		must(w.t, err)
	}
	return row.ID
}

func (w *world) status(id string) func() api.Status {
	return func() api.Status {
		b, err := w.Get(w.t.Context(), alice, id)
		if err != nil {
			return api.Status(api.CodeOf(err))
		}
		return b.Status
	}
}

func TestStartAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	fine := w.leave(api.StatusRunning, true, nil)
	cutOff := w.leave(api.StatusCreating, true, nil)
	cutOffEarly := w.leave(api.StatusCreating, false, nil)
	lost := w.leave(api.StatusRunning, false, nil)
	halfDeleted := w.leave(api.StatusDeleting, true, nil)
	halfExpired := w.leave(api.StatusDeleting, true, func(b *store.Sandbox) { b.ExpiresAt = time.Now().Add(-time.Minute) })
	expired := w.leave(api.StatusRunning, true, func(b *store.Sandbox) { b.ExpiresAt = time.Now().Add(-time.Minute) })
	frozen := w.leave(api.StatusRunning, true, nil)
	must(t, w.host.Pause(t.Context(), frozen))
	thawed := w.leave(api.StatusPaused, true, nil)
	dead := w.leave(api.StatusRunning, true, nil)
	w.host.die(dead)
	failed := w.leave(api.StatusFailed, true, nil)
	stray := api.NewID()
	_, err := w.host.Create(t.Context(), host.Spec{ID: stray})
	must(t, err)

	w.start()
	for _, id := range []string{cutOff, cutOffEarly, halfDeleted, halfExpired, expired} {
		eventually(t, "a row is gone", w.gone(id))
	}
	for id, want := range map[string]api.Status{
		lost: api.StatusFailed, frozen: api.StatusPaused, thawed: api.StatusRunning, dead: api.StatusFailed,
		failed: api.StatusFailed, fine: api.StatusRunning,
	} {
		eventually(t, "a sandbox is "+string(want), func() bool { return w.status(id)() == want })
	}
	eventually(t, "only what is wanted is on the host", func() bool { return w.host.count() == 3 })
	if res := w.sh(fine, "echo still here"); res.Stdout != "still here\n" {
		t.Fatalf("%+v", res)
	}
	for id, want := range map[string]string{
		lost: "died", dead: "died", expired: "expired", halfDeleted: "deleted", halfExpired: "expired", cutOff: "deleted",
	} {
		if h := w.history(id); h != want {
			t.Errorf("%s, want %s", h, want)
		}
	}
	_, err = w.Exec(t.Context(), alice, lost, api.Exec{Cmd: cmd("true")})
	wantCode(t, err, api.CodeSandboxDied)
	_, err = w.SetLifecycle(t.Context(), alice, lost, api.Lifecycle{TTLSeconds: ptr(9)})
	wantCode(t, err, api.CodeSandboxDied)
	must(t, w.Delete(t.Context(), alice, lost))
}

func TestDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{SandboxesPerOrg: 1})
	w.start()
	b := w.create(api.CreateSandbox{Persistent: true})
	if b.ExpiresAt != nil || b.TTLSeconds != 0 {
		t.Fatalf("%+v", b)
	}
	// The host is followed from a moment after the start on; the next
	// comparison would find it as well, but later than this test waits.
	eventually(t, "the service follows the host", func() bool {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		return len(w.host.watchers) == 1
	})
	w.host.die(b.ID)
	eventually(t, "it is failed", func() bool { return w.status(b.ID)() == api.StatusFailed })
	got, err := w.Get(t.Context(), alice, b.ID)
	must(t, err)
	if got.Error == nil || got.Error.Code != api.CodeSandboxDied || got.ExpiresAt == nil || time.Until(*got.ExpiresAt) < 50*time.Minute {
		t.Fatalf("%+v", got)
	}
	_, err = w.Guest(t.Context(), alice, b.ID)
	wantCode(t, err, api.CodeSandboxDied)
	_, err = w.Pause(t.Context(), alice, b.ID)
	wantCode(t, err, api.CodeSandboxDied)
	if h := w.history(b.ID); h != "running died" {
		t.Fatal(h)
	}
	eventually(t, "the host has let go of it", func() bool { return w.host.count() == 0 })
	w.create(api.CreateSandbox{}) // it does not count against the quota
}

func TestDeleteIsFinishedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	w.host.deleteErr = api.Errorf(api.CodeHostUnreachable, "no answer")
	wantCode(t, w.Delete(t.Context(), alice, b.ID), api.CodeHostUnreachable)
	if st := w.status(b.ID)(); st != api.StatusDeleting {
		t.Fatal(st)
	}
	if h := w.history(b.ID); h != "running" {
		t.Fatal(h)
	}
	w.host.deleteErr = nil
	w.restart()
	w.start()
	eventually(t, "it is gone", w.gone(b.ID))
	if h := w.history(b.ID); h != "running deleted" {
		t.Fatal(h)
	}
}

// A create that fails when the host does not answer either is cleaned later.
func TestUndoIsFinishedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	w.host.afterCreate = func(context.Context, host.Spec) error { return errors.New("the answer was lost") }
	w.host.deleteErr = api.Errorf(api.CodeHostUnreachable, "no answer")
	_, err := w.Create(t.Context(), alice, api.CreateSandbox{})
	wantCode(t, err, api.CodeInternal)
	w.host.mu.Lock()
	w.host.deleteErr = nil
	w.host.mu.Unlock()
	w.start()
	eventually(t, "nothing is left", func() bool {
		rows, err := w.store.AllSandboxes(t.Context())
		return err == nil && len(rows) == 0 && w.host.count() == 0
	})
}

// Comparing while sandboxes come and go takes nothing that is wanted.
func TestReconcileBesideChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	done := make(chan struct{})
	var compare sync.WaitGroup
	compare.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				// The start of each Run compares.
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
				cancel()
			}
		}
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				b, err := w.Create(t.Context(), alice, api.CreateSandbox{})
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := w.Get(t.Context(), alice, b.ID); err != nil || got.Status != api.StatusRunning {
					t.Error(got.Status, err)
				}
				if err := w.Delete(t.Context(), alice, b.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	compare.Wait()
	if n := w.host.count(); n != 0 {
		t.Fatal(n, "left")
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{DefaultTTL: 1800})
	w.start()
	short := w.create(api.CreateSandbox{TTLSeconds: ptr(1)})
	long := w.create(api.CreateSandbox{TTLSeconds: ptr(2)})
	kept := w.create(api.CreateSandbox{TTLSeconds: ptr(2)})
	brought := w.create(api.CreateSandbox{})
	l, err := w.SetLifecycle(t.Context(), alice, long.ID, api.Lifecycle{TTLSeconds: ptr(600)})
	must(t, err)
	if *l.TTLSeconds != 600 || *l.Persistent || time.Until(*l.ExpiresAt) < 500*time.Second {
		t.Fatalf("%+v", l)
	}
	l, err = w.SetLifecycle(t.Context(), alice, kept.ID, api.Lifecycle{Persistent: ptr(true)})
	must(t, err)
	if !*l.Persistent || l.ExpiresAt != nil || l.TTLSeconds != nil {
		t.Fatalf("%+v", l)
	}
	_, err = w.SetLifecycle(t.Context(), alice, brought.ID, api.Lifecycle{TTLSeconds: ptr(1)})
	must(t, err)
	eventually(t, "the short one has expired", w.gone(short.ID))
	eventually(t, "the shortened one has expired", w.gone(brought.ID))
	if late := time.Since(*short.ExpiresAt); late > 10*time.Second || late < 0 {
		t.Error("it ended", late, "after its time")
	}
	if h := w.history(short.ID); h != "running expired" {
		t.Fatal(h)
	}
	time.Sleep(time.Until(long.ExpiresAt.Add(time.Second)))
	if w.status(long.ID)() != api.StatusRunning || w.status(kept.ID)() != api.StatusRunning {
		t.Fatal("a prolonged sandbox was ended")
	}
	l, err = w.SetLifecycle(t.Context(), alice, kept.ID, api.Lifecycle{Persistent: ptr(false)})
	if err != nil || *l.TTLSeconds != 1800 || l.ExpiresAt == nil {
		t.Fatal(l, err)
	}
	before, err := w.Lifecycle(t.Context(), alice, long.ID)
	must(t, err)
	after, err := w.SetLifecycle(t.Context(), alice, long.ID, api.Lifecycle{})
	if err != nil || !after.ExpiresAt.Equal(*before.ExpiresAt) {
		t.Fatal(after, err)
	}
	for _, bad := range []api.Lifecycle{{TTLSeconds: ptr(0)}, {TTLSeconds: ptr(-1)}, {TTLSeconds: ptr(1 << 30)},
		{TTLSeconds: ptr(5), Persistent: ptr(true)}, {ExpiresAt: ptr(time.Now())}} {
		_, err := w.SetLifecycle(t.Context(), alice, long.ID, bad)
		wantCode(t, err, api.CodeInvalidRequest)
	}
}

// The row of one that failed leaves when its time for inspection is over.
func TestFailedRowLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	id := w.leave(api.StatusFailed, false, func(b *store.Sandbox) { b.ExpiresAt = time.Now().Add(-time.Second) })
	w.start()
	eventually(t, "it is gone", w.gone(id))
}
