package control_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/control"
)

// anyPort listens on all addresses of this machine, where the sandboxes of these
// tests are. Tests that use it are not parallel: other tests would hear of it.
func anyPort(t *testing.T) (l net.Listener, port int) {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
	return l, l.Addr().(*net.TCPAddr).Port
}

func (w *world) wantVisibility(id string, port int, want api.Visibility) {
	w.t.Helper()
	if got, err := w.PortVisibility(w.t.Context(), id, port); err != nil || got != want {
		w.t.Fatalf("port %d is %q, want %q (%v)", port, got, want, err)
	}
}

func TestPreviewVisibility(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b := w.create(api.CreateSandbox{})
	w.wantVisibility(b.ID, 8000, api.PreviewPublic)
	_, err := w.ExposePort(ctx, alice, b.ID, api.ExposePort{Port: 8000, Visibility: api.PreviewPrivate})
	must(t, err)
	w.wantVisibility(b.ID, 8000, api.PreviewPrivate)
	must(t, w.ClosePort(ctx, alice, b.ID, 9000))
	w.wantVisibility(b.ID, 9000, api.PreviewClosed)
	if p, err := w.Preview(ctx, alice, b.ID, 8000); err != nil || p.Port != 8000 || p.Visibility != api.PreviewPrivate {
		t.Fatal(p, err)
	}
	tree, err := w.Fork(ctx, alice, b.ID, api.Fork{})
	must(t, err)
	w.wantVisibility(tree.Children[0].ID, 8000, api.PreviewPrivate)
	w.hibernate(b.ID)
	w.wantVisibility(b.ID, 8000, api.PreviewPrivate)
	if w.host.disk.wakes.Load() != 0 {
		t.Error("who asks for the visibility wakes it")
	}
	w.restart()
	w.wantVisibility(b.ID, 8000, api.PreviewPrivate)
	_, err = w.ExposePort(ctx, alice, b.ID, api.ExposePort{Port: 8000})
	must(t, err)
	w.wantVisibility(b.ID, 8000, api.PreviewPublic)
	w.wantVisibility(tree.Children[0].ID, 8000, api.PreviewPrivate)
	must(t, w.Delete(ctx, alice, b.ID))
	_, err = w.PortVisibility(ctx, b.ID, 8000)
	wantCode(t, err, api.CodeSandboxNotFound)
}

func TestPreviewRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b := w.create(api.CreateSandbox{})
	for _, id := range []string{b.ID, api.NewID(), "../x"} {
		_, e1 := w.Ports(ctx, mallory, id)
		_, e2 := w.ExposePort(ctx, mallory, id, api.ExposePort{Port: 80})
		_, e3 := w.Preview(ctx, mallory, id, 80)
		for _, err := range []error{e1, e2, e3, w.ClosePort(ctx, mallory, id, 80)} {
			wantCode(t, err, api.CodeSandboxNotFound)
		}
	}
	for port, code := range map[int]api.Code{
		0: api.CodeInvalidRequest, -1: api.CodeInvalidRequest, 65536: api.CodeInvalidRequest, api.InternalPort: api.CodeForbidden, 49999: api.CodeForbidden,
	} {
		_, e1 := w.PortVisibility(ctx, b.ID, port)
		_, e2 := w.ExposePort(ctx, alice, b.ID, api.ExposePort{Port: port})
		_, e3 := w.Preview(ctx, alice, b.ID, port)
		_, e4 := w.DialPort(ctx, b.ID, port)
		for _, err := range []error{e1, e2, e3, e4, w.ClosePort(ctx, alice, b.ID, port), w.CertifyPort(ctx, b.ID, port)} {
			wantCode(t, err, code)
		}
	}
	_, err := w.ExposePort(ctx, alice, b.ID, api.ExposePort{Port: 80, Visibility: "secret"})
	wantCode(t, err, api.CodeInvalidRequest)
	for port := 1; port <= 256; port++ {
		must(t, w.ClosePort(ctx, alice, b.ID, port))
	}
	wantCode(t, w.ClosePort(ctx, alice, b.ID, 257), api.CodeInvalidRequest)
	must(t, w.ClosePort(ctx, alice, b.ID, 256)) // one of them
}

// The era is another whenever connections lead to another machine.
func TestPreviewEras(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b := w.create(api.CreateSandbox{})
	last := uint64(0)
	era := func() uint64 {
		t.Helper()
		e, err := w.Awake(ctx, b.ID)
		must(t, err)
		return e
	}
	other := func(what string) {
		t.Helper()
		if e := era(); e == last || e != era() {
			t.Errorf("after %s the era is %d, before %d", what, e, last)
		}
		last = era()
	}
	other("the create")
	_, err := w.SetLifecycle(ctx, alice, b.ID, api.Lifecycle{TTLSeconds: ptr(600)})
	must(t, err)
	if era() != last {
		t.Error("a change of the row is no other machine")
	}
	w.hibernate(b.ID)
	other("a sleep")
	snap, err := w.Checkpoint(ctx, alice, b.ID, api.Checkpoint{})
	must(t, err)
	_, err = w.Restore(ctx, alice, b.ID, api.Restore{Checkpoint: snap.ID})
	must(t, err)
	other("a rollback")
	_, err = w.Pause(ctx, alice, b.ID)
	must(t, err)
	_, err = w.Awake(ctx, b.ID)
	wantCode(t, err, api.CodeSandboxState)
}

// A hundred connections to one that sleeps share one wake.
func TestPreviewsShareOneWake(t *testing.T) {
	w := newWorld(t, control.Limits{})
	b := w.create(api.CreateSandbox{})
	l, port := anyPort(t)
	w.hibernate(b.ID)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			conn, err := w.DialPort(t.Context(), b.ID, port)
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		})
	}
	wg.Wait()
	if n := w.host.disk.wakes.Load(); n != 1 {
		t.Errorf("%d wakes", n)
	}
	l.Close()
	if _, err := w.DialPort(t.Context(), b.ID, port); err == nil {
		t.Error("nothing listens there any more")
	}
}

// Visitors do not have a wake that failed tried again and again; its owner may,
// and so may they after any change.
func TestFailedWakeRests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b := w.create(api.CreateSandbox{})
	w.hibernate(b.ID)
	wakes := &w.host.disk.wakes
	w.host.disk.beforeWake = func(context.Context, string) error { return api.Errorf(api.CodeCapacity, "no room") }
	begun := time.Now()
	for range 50 {
		_, e1 := w.Awake(ctx, b.ID)
		_, e2 := w.DialPort(ctx, b.ID, 8000)
		wantCode(t, e1, api.CodeCapacity)
		wantCode(t, e2, api.CodeCapacity)
	}
	if n, most := wakes.Load(), 1+int64(time.Since(begun)/(3*time.Second)); n < 1 || n > most {
		t.Errorf("%d wakes, want at most %d", n, most)
	}
	for range 2 {
		n := wakes.Load()
		_, err := w.Wake(ctx, alice, b.ID)
		if wantCode(t, err, api.CodeCapacity); wakes.Load() != n+1 {
			t.Error("its owner's wake was not tried")
		}
	}
	n := wakes.Load()
	_, err := w.SetLifecycle(ctx, alice, b.ID, api.Lifecycle{TTLSeconds: ptr(600)})
	must(t, err)
	_, err = w.Awake(ctx, b.ID)
	if wantCode(t, err, api.CodeCapacity); wakes.Load() != n+1 {
		t.Error("a change did not end the rest")
	}
	w.host.disk.beforeWake = nil
	eventually(t, "a failure is forgotten", func() bool { _, err := w.Awake(ctx, b.ID); return err == nil })
}

// What runs inside listens on as many ports as it likes, but has certificates
// asked for few of them.
func TestCertifyFew(t *testing.T) {
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b, other := w.create(api.CreateSandbox{}), w.create(api.CreateSandbox{})
	var ports []int
	for range 9 {
		_, port := anyPort(t)
		ports = append(ports, port)
	}
	for range 2 { // a name is counted once
		for _, port := range ports[:8] {
			must(t, w.CertifyPort(ctx, b.ID, port))
		}
	}
	wantCode(t, w.CertifyPort(ctx, b.ID, ports[8]), api.CodeRateLimited)
	must(t, w.CertifyPort(ctx, other.ID, ports[8]))
	_, err := w.ExposePort(ctx, alice, b.ID, api.ExposePort{Port: ports[8]})
	must(t, err)
	must(t, w.CertifyPort(ctx, b.ID, ports[8]))
}

func TestPorts(t *testing.T) {
	w := newWorld(t, control.Limits{})
	ctx := t.Context()
	b := w.create(api.CreateSandbox{})
	_, port := anyPort(t)
	find := func(port int) (api.Port, bool) {
		t.Helper()
		ports, err := w.Ports(ctx, alice, b.ID)
		must(t, err)
		i := slices.IndexFunc(ports, func(p api.Port) bool { return p.Port == port })
		if i < 0 {
			return api.Port{}, false
		}
		return ports[i], true
	}
	if p, ok := find(port); !ok || !p.Listening || p.Process == "" || p.Visibility != api.PreviewPublic {
		t.Errorf("%+v", p)
	}
	must(t, w.CertifyPort(ctx, b.ID, port))
	wantCode(t, w.CertifyPort(ctx, b.ID, 1), api.CodePreviewUnreachable)
	must(t, w.ClosePort(ctx, alice, b.ID, 1))
	must(t, w.CertifyPort(ctx, b.ID, 1))
	if p, ok := find(1); !ok || p.Listening || p.Visibility != api.PreviewClosed {
		t.Errorf("%+v", p)
	}
	w.hibernate(b.ID)
	if _, ok := find(port); ok || w.host.disk.wakes.Load() != 0 {
		t.Error("something listens in one that sleeps, or it was woken")
	}
	if _, ok := find(1); !ok {
		t.Error("what was set of one that sleeps is not told")
	}
}

// Who follows events hears of ports from then on, also after a sleep, and nobody
// looks when nobody follows.
func TestPortEvents(t *testing.T) {
	w := newWorld(t, control.Limits{})
	w.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := w.create(api.CreateSandbox{})
	events := make(chan api.Event, 1000)
	done := make(chan error, 1)
	go func() {
		done <- w.FollowEvents(ctx, alice, b.ID, 0, func(ev api.Event) error { events <- ev; return nil })
	}()
	wait := func(kind string, port int) {
		t.Helper()
		for {
			select {
			case ev := <-events:
				if ev.Type == kind && ev.Data["port"] == strconv.Itoa(port) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no %s of port %d", kind, port)
			}
		}
	}
	l, port := anyPort(t)
	for opened := false; !opened; { // the first look may have come after it was opened
		select {
		case ev := <-events:
			opened = ev.Type == control.EventPortOpened && ev.Data["port"] == strconv.Itoa(port)
		case <-time.After(5 * time.Second):
			l.Close()
			l, port = anyPort(t)
		case <-ctx.Done():
			t.Fatal("no port.opened")
		}
	}
	w.hibernate(b.ID)
	l.Close()
	_, err := w.Wake(ctx, alice, b.ID)
	must(t, err)
	wait(control.EventPortClosed, port)
	must(t, w.Delete(ctx, alice, b.ID))
	must(t, <-done)
}
