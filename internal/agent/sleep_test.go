package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// brokenKeeper fails on demand.
type brokenKeeper struct {
	snapshot.Keeper
	mu   sync.Mutex
	keep error
	open error
	held chan struct{} // Keep sends to it when it begins and when it may go on
}

func (k *brokenKeeper) set(change func(*brokenKeeper)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *brokenKeeper) Keep(ctx context.Context, info snapshot.Info) (snapshot.Record, error) {
	k.mu.Lock()
	err, held := k.keep, k.held
	k.mu.Unlock()
	if held != nil {
		held <- struct{}{}
		held <- struct{}{}
	}
	if err != nil {
		return snapshot.Record{}, err
	}
	return k.Keeper.Keep(ctx, info)
}

func (k *brokenKeeper) Open(ctx context.Context, id string) (*snapshot.Source, error) {
	k.mu.Lock()
	err := k.open
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return k.Keeper.Open(ctx, id)
}

// startBroken runs an agent on fakes whose store of snapshots can be broken.
func startBroken(t *testing.T, d *fakeDriver, change ...func(*Config)) (*Agent, *fakeNetwork, *brokenKeeper) {
	t.Helper()
	k := &brokenKeeper{Keeper: openKeeper(t)}
	a, n := startFake(t, d, append(change, func(c *Config) { c.Kept = k })...)
	return a, n, k
}

// wantNoSleep checks that no snapshot of a sleeping sandbox is kept. Those of
// ones that are awake go in the background.
func wantNoSleep(t *testing.T, a *Agent) {
	t.Helper()
	wantKept(t, a, 0)
}

func wantKept(t *testing.T, a *Agent, want int) {
	t.Helper()
	var list []snapshot.Record
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if list, err = a.cfg.Kept.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(list) == want {
			return
		}
	}
	t.Errorf("%d snapshots are kept, want %d: %+v", len(list), want, list)
}

func wantState(t *testing.T, a *Agent, id string, want host.State) {
	t.Helper()
	s, err := a.Get(t.Context(), id)
	if err != nil || s.State != want {
		t.Errorf("the sandbox is %+v, %v, want it %s", s, err, want)
	}
}

func mustCreate(t *testing.T, a *Agent) host.Sandbox {
	t.Helper()
	s, err := a.Create(t.Context(), specFor(api.NewID()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *fakeNetwork) held() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.taken)
}

func TestHibernateAndWake(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, n := startFake(t, d)
	ctx := t.Context()
	s := mustCreate(t, a)
	for range 2 { // the second changes nothing
		if err := a.Hibernate(ctx, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	wantState(t, a, s.ID, host.StateHibernated)
	if d.count() != 0 || n.held() != 0 {
		t.Errorf("a sleeping sandbox has %d machines and %d slots", d.count(), n.held())
	}
	_, err := a.Dial(ctx, s.ID, 80)
	wantCode(t, err, api.CodeSandboxState)
	_, err = a.Usage(ctx, s.ID)
	wantCode(t, err, api.CodeSandboxState)
	wantCode(t, a.Pause(ctx, s.ID), api.CodeSandboxState)
	_, err = a.Fork(ctx, s.ID, []host.Spec{specFor(api.NewID())})
	wantCode(t, err, api.CodeSandboxState)
	if list, err := a.Snapshots(ctx); err != nil || len(list) != 0 {
		t.Errorf("snapshots %+v, %v: what a sandbox sleeps in is listed", list, err)
	}
	woken, err := a.Wake(ctx, s.ID)
	if err != nil || woken.BootMode != api.BootWake || woken.State != host.StateRunning || len(woken.BootSteps) == 0 || woken.GuestIP == "" {
		t.Errorf("wake: %+v, %v", woken, err)
	}
	if again, err := a.Wake(ctx, s.ID); err != nil || again.BootMS != woken.BootMS {
		t.Errorf("wake of one that runs: %+v, %v", again, err)
	}
	wantNoSleep(t, a)
	if err := a.Hibernate(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	wantKept(t, a, 1)
	if err := a.Delete(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	wantNoSleep(t, a)
}

// TestHibernateThatFailsHarmsNothing fails it in each of its parts; the sandbox
// goes on and can be hibernated when the fault is gone.
func TestHibernateThatFailsHarmsNothing(t *testing.T) {
	t.Parallel()
	full := api.Errorf(api.CodeSnapshotStoreFull, "the store is full")
	var fault error
	var point string
	d := newFakeDriver()
	a, n, k := startBroken(t, d, func(c *Config) {
		c.Fault = func(at string) error {
			if at == point {
				return fault
			}
			return nil
		}
	})
	s := mustCreate(t, a)
	m := d.machine(s.ID)
	check := func(name string, want api.Code) {
		t.Helper()
		wantCode(t, a.Hibernate(t.Context(), s.ID), want)
		wantState(t, a, s.ID, host.StateRunning)
		if d.count() != 1 || n.held() != 1 || m.parked.Load() {
			t.Errorf("%s: %d machines, %d slots, parked %v", name, d.count(), n.held(), m.parked.Load())
		}
		wantNoSleep(t, a)
		staged, _ := filepath.Glob(filepath.Join(filepath.Dir(k.Stage("x")), "*"))
		if len(staged) != 0 {
			t.Errorf("%s: staged directories %v are left", name, staged)
		}
		if rec, ok := a.journal.read(s.ID); !ok || rec.Sandbox.State != host.StateRunning || rec.Handle == nil || rec.Sleep != "" {
			t.Errorf("%s: the record is %+v", name, rec)
		}
	}
	d.set(func(d *fakeDriver) { d.capture = func() error { return errors.New("no") } })
	check("capture", api.CodeInternal)
	d.set(func(d *fakeDriver) { d.capture = nil })
	k.set(func(k *brokenKeeper) { k.keep = full })
	check("keep", api.CodeSnapshotStoreFull)
	k.set(func(k *brokenKeeper) { k.keep = nil })
	fault = full
	for _, p := range points("hibernate", a.hibernateSteps()) {
		point = p
		check(p, api.CodeSnapshotStoreFull)
	}
	point = ""
	if err := a.Hibernate(t.Context(), s.ID); err != nil {
		t.Errorf("hibernate: %v", err)
	}
}

// TestWakeThatFailsLeavesItAsleep fails a wake in each of its parts.
func TestWakeThatFailsLeavesItAsleep(t *testing.T) {
	t.Parallel()
	away := api.Errorf(api.CodeSnapshotStore, "the store is away")
	var fault error
	var point string
	d := newFakeDriver()
	a, n, k := startBroken(t, d, func(c *Config) {
		c.Fault = func(at string) error {
			if at == point {
				return fault
			}
			return nil
		}
	})
	s := mustCreate(t, a)
	if err := a.Hibernate(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	check := func(name string, want api.Code) {
		t.Helper()
		_, err := a.Wake(t.Context(), s.ID)
		wantCode(t, err, want)
		wantState(t, a, s.ID, host.StateHibernated)
		if d.count() != 0 || n.held() != 0 {
			t.Errorf("%s: %d machines and %d slots", name, d.count(), n.held())
		}
		if rec, ok := a.journal.read(s.ID); !ok || rec.Sandbox.State != host.StateHibernated || rec.Handle != nil || rec.Sleep == "" {
			t.Errorf("%s: the record is %+v", name, rec)
		}
		wantKept(t, a, 1)
	}
	k.set(func(k *brokenKeeper) { k.open = away })
	check("open", api.CodeSnapshotStore)
	k.set(func(k *brokenKeeper) { k.open = nil })
	d.set(func(d *fakeDriver) {
		d.refuse = func(driver.Spec) error { return api.Errorf(api.CodeSnapshotCorrupt, "a chunk is missing") }
	})
	check("start", api.CodeSnapshotCorrupt)
	d.set(func(d *fakeDriver) { d.refuse = nil })
	fault = away
	for _, p := range points("wake", a.reviveSteps()) {
		point = p
		check(p, api.CodeSnapshotStore)
	}
	point = ""
	if _, err := a.Wake(t.Context(), s.ID); err != nil {
		t.Errorf("wake: %v", err)
	}
	wantNoSleep(t, a)
}

// TestConnectionsWaitForASleepToEnd: who comes while a sandbox is put to sleep is
// told that it sleeps, or served when that failed; a delete waits as well.
func TestConnectionsWaitForASleepToEnd(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, n, k := startBroken(t, d)
	k.held = make(chan struct{})
	s := mustCreate(t, a)
	slept := make(chan error, 1)
	go func() { slept <- a.Hibernate(context.WithoutCancel(t.Context()), s.ID) }()
	<-k.held
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := a.Dial(short, s.ID, api.InternalPort)
	wantCode(t, err, api.CodeTimeout)
	dialled, deleted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := a.Dial(context.WithoutCancel(t.Context()), s.ID, api.InternalPort)
		dialled <- err
		deleted <- a.Delete(context.WithoutCancel(t.Context()), s.ID)
	}()
	<-k.held
	if err := <-slept; err != nil {
		t.Errorf("hibernate: %v", err)
	}
	wantCode(t, <-dialled, api.CodeSandboxState)
	if err := <-deleted; err != nil {
		t.Errorf("delete: %v", err)
	}
	wantNoSleep(t, a)
	if d.count() != 0 || n.held() != 0 || len(a.all()) != 0 {
		t.Errorf("%d machines, %d slots and %d sandboxes are left", d.count(), n.held(), len(a.all()))
	}
}

func TestAHundredWakesAreOne(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, _ := startFake(t, d)
	s := mustCreate(t, a)
	if err := a.Hibernate(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	before := len(d.starts)
	d.mu.Unlock()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got, err := a.Wake(t.Context(), s.ID); err != nil || got.State != host.StateRunning {
				t.Errorf("wake: %+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.starts) - before; n != 1 {
		t.Errorf("100 wakes started %d machines", n)
	}
}

// TestDeathBeforeItIsAwake leads back to sleep; death afterwards does not.
func TestDeathBeforeItIsAwake(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, n := startFake(t, d)
	ctx := t.Context()
	changes, err := a.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := mustCreate(t, a)
	if err := a.Hibernate(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	d.set(func(d *fakeDriver) { d.loading = make(chan struct{}) })
	if _, err := a.Wake(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	a.lookup(s.ID).machine.(*fakeMachine).end()
	if change := <-changes; change.State != host.StateHibernated || change.SandboxID != s.ID {
		t.Errorf("change %+v", change)
	}
	a.awaitTurn(t, s.ID)
	wantState(t, a, s.ID, host.StateHibernated)
	wantKept(t, a, 1)
	if n.held() != 0 {
		t.Errorf("%d slots are held", n.held())
	}
	d.set(func(d *fakeDriver) { close(d.loading) })
	if _, err := a.Wake(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	wantNoSleep(t, a)
	a.lookup(s.ID).machine.(*fakeMachine).end()
	if change := <-changes; change.State != host.StateFailed {
		t.Errorf("change %+v", change)
	}
}

// awaitTurn waits for what goes on with a sandbox.
func (a *Agent) awaitTurn(t *testing.T, id string) {
	t.Helper()
	s := a.lookup(id)
	if err := s.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.give()
}

// TestSleepAgainAtOnce puts a sandbox to sleep that may not have forgotten yet what
// it was woken from: one snapshot is kept at the end.
func TestSleepAgainAtOnce(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, _ := startFake(t, d)
	ctx := t.Context()
	s := mustCreate(t, a)
	for range 5 {
		if err := a.Hibernate(ctx, s.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Wake(ctx, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Hibernate(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	wantKept(t, a, 1)
	if _, err := a.Wake(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	wantNoSleep(t, a)
}

// TestForkIsAllOrNone fails one child of several.
func TestForkIsAllOrNone(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, n := startFake(t, d)
	ctx := t.Context()
	parent := mustCreate(t, a)
	bad := api.NewID()
	d.set(func(d *fakeDriver) {
		d.refuse = func(s driver.Spec) error {
			if s.ID == bad {
				return api.Errorf(api.CodeCapacity, "the host's disk is full")
			}
			return nil
		}
	})
	specs := []host.Spec{specFor(api.NewID()), specFor(api.NewID()), specFor(bad), specFor(api.NewID())}
	_, err := a.Fork(ctx, parent.ID, specs)
	wantCode(t, err, api.CodeCapacity)
	if e := api.AsError(err); e.Message != "child "+bad+": the host's disk is full" {
		t.Errorf("message %q", e.Message)
	}
	dirs, _ := os.ReadDir(a.forks())
	if d.count() != 1 || n.held() != 1 || len(a.all()) != 1 || len(dirs) != 0 {
		t.Errorf("%d machines, %d slots, %d sandboxes, %d captures are left", d.count(), n.held(), len(a.all()), len(dirs))
	}
	d.set(func(d *fakeDriver) { d.refuse, d.loading = nil, make(chan struct{}) })
	children, err := a.Fork(ctx, parent.ID, specs)
	if err != nil || len(children) != 4 {
		t.Fatalf("fork: %+v, %v", children, err)
	}
	for i, c := range children {
		if c.ID != specs[i].ID || c.BootMode != api.BootFork || c.DiskMB != parent.DiskMB || c.BootSteps[0].Name != "capture" {
			t.Errorf("child %+v", c)
		}
	}
	if dirs, _ := os.ReadDir(a.forks()); len(dirs) != 1 {
		t.Errorf("%d captures while children are loaded, want 1", len(dirs))
	}
	d.set(func(d *fakeDriver) { close(d.loading) })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if dirs, _ = os.ReadDir(a.forks()); len(dirs) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the capture stays when all children are loaded")
		}
	}
}

func TestForkRefusals(t *testing.T) {
	t.Parallel()
	a, _ := startFake(t, newFakeDriver())
	parent := mustCreate(t, a)
	good := specFor(api.NewID())
	for name, test := range map[string]struct {
		children []host.Spec
		want     api.Code
	}{
		"none":     {nil, api.CodeInvalidRequest},
		"twice":    {[]host.Spec{good, good}, api.CodeInvalidRequest},
		"id":       {[]host.Spec{{ID: "../x", Token: "t"}}, api.CodeInvalidRequest},
		"snapshot": {[]host.Spec{{ID: api.NewID(), Token: "t", Snapshot: api.NewSnapshotID()}}, api.CodeInvalidRequest},
		"disk":     {[]host.Spec{{ID: api.NewID(), Token: "t", DiskMB: 128}}, api.CodeInvalidRequest},
		"driver":   {[]host.Spec{{ID: api.NewID(), Token: "t", Driver: "other"}}, api.CodeInvalidRequest},
		"exists":   {[]host.Spec{specFor(parent.ID)}, api.CodeSandboxExists},
		"too many": {make([]host.Spec, 65), api.CodeCapacity},
	} {
		if _, err := a.Fork(t.Context(), parent.ID, test.children); api.CodeOf(err) != test.want {
			t.Errorf("%s: error %v, want %s", name, err, test.want)
		}
	}
	_, err := a.Fork(t.Context(), api.NewID(), []host.Spec{good})
	wantCode(t, err, api.CodeSandboxNotFound)
	if len(a.all()) != 1 {
		t.Errorf("%d sandboxes", len(a.all()))
	}
}

func TestSnapshotIDs(t *testing.T) {
	t.Parallel()
	d := newFakeDriver()
	a, _, k := startBroken(t, d)
	ctx := t.Context()
	s := mustCreate(t, a)
	id := api.NewSnapshotID()
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		wg.Go(func() {
			got, err := a.Snapshot(ctx, s.ID, host.SnapshotSpec{ID: id, Memory: true})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
				if got.ID != id || got.SandboxID != s.ID || !got.Memory || got.Template != testTemplate || got.SizeBytes == 0 || got.DiskMB != 64 {
					t.Errorf("snapshot %+v", got)
				}
			} else if api.CodeOf(err) != api.CodeSnapshotExists {
				t.Errorf("snapshot: %v", err)
			}
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("one id was given %d times", made)
	}
	_, err := a.Snapshot(ctx, s.ID, host.SnapshotSpec{ID: "sleep-1"})
	wantCode(t, err, api.CodeInvalidRequest)
	full := api.Errorf(api.CodeSnapshotStoreFull, "it is full")
	k.set(func(k *brokenKeeper) { k.keep = full })
	_, err = a.Snapshot(ctx, s.ID, host.SnapshotSpec{ID: api.NewSnapshotID()})
	wantCode(t, err, api.CodeSnapshotStoreFull)
	if list, err := a.Snapshots(ctx); err != nil || len(list) != 1 {
		t.Errorf("snapshots %+v, %v", list, err)
	}
	for range 2 {
		if err := a.DeleteSnapshot(ctx, id); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	_, err = a.GetSnapshot(ctx, id)
	wantCode(t, err, api.CodeSnapshotNotFound)
	spec := specFor(api.NewID())
	spec.Snapshot = id
	_, err = a.Create(ctx, spec)
	wantCode(t, err, api.CodeSnapshotNotFound)
}

// TestRollbackThatFailsHarmsNothing fails it in each of its parts.
func TestRollbackThatFailsHarmsNothing(t *testing.T) {
	t.Parallel()
	boom := api.Errorf(api.CodeCapacity, "boom")
	var point string
	d := newFakeDriver()
	a, n := startFake(t, d, func(c *Config) {
		c.Fault = func(at string) error {
			if at == point {
				return boom
			}
			return nil
		}
	})
	ctx := t.Context()
	s, other := mustCreate(t, a), mustCreate(t, a)
	snap, foreign := api.NewSnapshotID(), api.NewSnapshotID()
	for id, of := range map[string]string{snap: s.ID, foreign: other.ID} {
		if _, err := a.Snapshot(ctx, of, host.SnapshotSpec{ID: id, Memory: true}); err != nil {
			t.Fatal(err)
		}
	}
	m := d.machine(s.ID)
	check := func(name, from string, want api.Code) {
		t.Helper()
		_, err := a.Rollback(ctx, s.ID, from)
		wantCode(t, err, want)
		wantState(t, a, s.ID, host.StateRunning)
		dirs, _ := filepath.Glob(filepath.Join(a.journal.dir(s.ID), machinePrefix+"*"))
		if d.count() != 2 || n.held() != 2 || m.paused.Load() || a.lookup(s.ID).machine != m || len(dirs) != 1 {
			t.Errorf("%s: %d machines, %d slots, paused %v, directories %v", name, d.count(), n.held(), m.paused.Load(), dirs)
		}
	}
	check("foreign", foreign, api.CodeInvalidRequest)
	check("unknown", api.NewSnapshotID(), api.CodeSnapshotNotFound)
	for _, p := range points("rollback", a.reviveSteps()) {
		point = p
		check(p, snap, api.CodeCapacity)
	}
	point = ""
	for range 2 {
		got, err := a.Rollback(ctx, s.ID, snap)
		if err != nil || got.BootMode != api.BootRestore || got.GuestIP != s.GuestIP {
			t.Errorf("rollback: %+v, %v", got, err)
		}
		a.awaitTurn(t, s.ID)
		if d.count() != 2 || n.held() != 2 || d.machine(s.ID) != nil {
			t.Errorf("%d machines and %d slots", d.count(), n.held())
		}
	}
	if err := a.Hibernate(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Rollback(ctx, s.ID, snap); err != nil || got.State != host.StateRunning {
		t.Errorf("rollback of a sleeping one: %+v, %v", got, err)
	}
	wantKept(t, a, 2)
}
