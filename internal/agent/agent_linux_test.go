package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

func wantNothingLeft(t *testing.T, s setting) {
	t.Helper()
	if left := append(s.leftovers(t), s.sandboxDirs()...); len(left) != 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

func TestCreateRestoresAndDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	s.Shells = 1
	w := start(t, s)
	sb := w.create(func(s *host.Spec) { s.Env = map[string]string{"COLOUR": "blue"} })
	if sb.BootMode != api.BootRestore || sb.State != host.StateRunning || sb.BootMS <= 0 || sb.GuestIP == "" {
		t.Errorf("record %+v", sb)
	}
	if sb.CPU != 1 || sb.MemoryMB != 256 || sb.DiskMB != 256 || sb.Driver != "gvisor" {
		t.Errorf("sizes %+v", sb)
	}
	var names []string
	for _, step := range sb.BootSteps {
		names = append(names, step.Name)
	}
	for _, want := range []string{"reserve", "template", "slot", "disk", "start", "start.restore", "guest"} {
		if !slices.Contains(names, want) {
			t.Errorf("boot steps %v lack %s", names, want)
		}
	}
	if got := w.sh(sb.ID, "echo $COLOUR; hostname"); got != "blue\n"+hostname(sb.ID) {
		t.Errorf("in the sandbox: %q", got)
	}
	if len(s.cgroups()) == 0 {
		t.Error("the search for cgroups does not find those of a running sandbox")
	}
	use, err := w.Usage(t.Context(), sb.ID)
	if err != nil || use.PID == 0 || use.MemoryLimit != 256<<20 || use.RxBytes == 0 {
		t.Errorf("usage %+v, %v", use, err)
	}
	got, err := w.Get(t.Context(), sb.ID)
	if err != nil || got.ID != sb.ID || got.BootMS != sb.BootMS {
		t.Errorf("get %+v, %v", got, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := w.Delete(context.WithoutCancel(t.Context()), sb.ID); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	_, err = w.Get(t.Context(), sb.ID)
	wantCode(t, err, api.CodeSandboxNotFound)
	w.stop()
	wantNothingLeft(t, s)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := start(t, newSetting(t))
	ctx := t.Context()
	for _, test := range []struct {
		change func(*host.Spec)
		want   api.Code
	}{
		{func(s *host.Spec) { s.ID = "../../../../etc/passwd" }, api.CodeInvalidRequest},
		{func(s *host.Spec) { s.Template = "" }, api.CodeInvalidRequest},
		{func(s *host.Spec) { s.Token = "" }, api.CodeInvalidRequest},
		{func(s *host.Spec) { s.MemoryMB = -1 }, api.CodeInvalidRequest},
		{func(s *host.Spec) { s.Template = "no-such" }, api.CodeTemplateNotFound},
		{func(s *host.Spec) { s.Driver = "no-such" }, api.CodeDriverUnavailable},
	} {
		spec := specFor(api.NewID())
		test.change(&spec)
		_, err := w.Create(ctx, spec)
		wantCode(t, err, test.want)
	}
	_, err := w.Create(ctx, func() host.Spec { s := specFor(api.NewID()); s.Driver = "no-such"; return s }())
	if err == nil || !strings.Contains(err.Error(), "gvisor: usable") {
		t.Errorf("the error does not say which drivers there are: %v", err)
	}
	unknown := api.NewID()
	_, err = w.Get(ctx, unknown)
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = w.Dial(ctx, unknown, 80)
	wantCode(t, err, api.CodeSandboxNotFound)
	wantCode(t, w.Pause(ctx, unknown), api.CodeSandboxNotFound)
	if err := w.Delete(ctx, unknown); err != nil {
		t.Errorf("delete of an unknown id: %v", err)
	}
	sb := w.create()
	_, err = w.Create(ctx, specFor(sb.ID))
	wantCode(t, err, api.CodeSandboxExists)
	_, err = w.Dial(ctx, sb.ID, 70000)
	wantCode(t, err, api.CodeInvalidRequest)
	if got := w.sh(sb.ID, "echo still here"); got != "still here" {
		t.Errorf("the first sandbox says %q", got)
	}
}

func TestPauseResumeAndAdoption(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	running, paused := w.create(), w.create()
	w.sh(running.ID, "echo kept > /home/user/file; sleep 10000 >/dev/null 2>&1 & echo $! > /home/user/pid")
	for range 2 {
		if err := w.Pause(t.Context(), paused.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.Dial(t.Context(), paused.ID, api.InternalPort)
	wantCode(t, err, api.CodeSandboxState)
	w.stop()
	_, err = w.Get(t.Context(), running.ID)
	wantCode(t, err, api.CodeHostUnreachable)

	w = start(t, s)
	list, err := w.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("the next agent has %+v, %v", list, err)
	}
	if got := w.sh(running.ID, "cat /home/user/file; kill -0 $(cat /home/user/pid) && echo alive"); got != "kept\nalive" {
		t.Errorf("in the adopted sandbox: %q", got)
	}
	if got, err := w.Get(t.Context(), paused.ID); err != nil || got.State != host.StatePaused {
		t.Errorf("the paused sandbox is %+v, %v", got, err)
	}
	for range 2 {
		if err := w.Resume(t.Context(), paused.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.sh(paused.ID, "echo awake"); got != "awake" {
		t.Errorf("in the resumed sandbox: %q", got)
	}
	if _, err := w.Usage(t.Context(), paused.ID); err != nil {
		t.Errorf("usage of an adopted sandbox: %v", err)
	}
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

func TestDeathIsNoticedToldAndFreed(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	sb := w.create()
	changes, err := w.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.killMachine(sb.ID)
	select {
	case c := <-changes:
		if c.SandboxID != sb.ID || c.State != host.StateFailed || c.Error == nil || c.Error.Code != api.CodeSandboxDied {
			t.Errorf("change %+v", c)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was told that the sandbox died")
	}
	got, err := w.Get(t.Context(), sb.ID)
	if err != nil || got.State != host.StateFailed || got.Error == nil {
		t.Errorf("the dead sandbox is %+v, %v", got, err)
	}
	_, err = w.Dial(t.Context(), sb.ID, api.InternalPort)
	wantCode(t, err, api.CodeSandboxState)
	wantCode(t, w.Resume(t.Context(), sb.ID), api.CodeSandboxState)
	w.stop()
	if left := s.leftovers(t); len(left) != 0 {
		t.Errorf("a dead sandbox holds:\n%s", strings.Join(left, "\n"))
	}
	w = start(t, s)
	got, err = w.Get(t.Context(), sb.ID)
	if err != nil || got.State != host.StateFailed || got.Error == nil || got.Error.Code != api.CodeSandboxDied {
		t.Errorf("after a restart the dead sandbox is %+v, %v", got, err)
	}
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

func TestMachineThatEndedWhileNoAgentLived(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	sb := w.create()
	use, err := w.Usage(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	if err := syscall.Kill(use.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w = start(t, s)
	got, err := w.Get(t.Context(), sb.ID)
	if err != nil || got.State != host.StateFailed || got.Error == nil || got.Error.Code != api.CodeSandboxDied {
		t.Errorf("the sandbox is %+v, %v", got, err)
	}
	if left := s.cgroups(); len(left) != 0 {
		t.Errorf("cgroups %v", left)
	}
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

// killMachine ends a machine from outside, as the kernel does when memory runs
// out.
func (w *world) killMachine(id string) {
	w.t.Helper()
	use, err := w.Usage(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := syscall.Kill(use.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
}

// TestFailureAtEveryStep fails a create before and after each step; the agent
// goes on and nothing is left.
func TestFailureAtEveryStep(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	s.Ahead = 0
	boom := errors.New("boom")
	var point atomic.Value
	point.Store("")
	w := start(t, s, func(c *Config) {
		c.Fault = func(at string) error {
			if at == point.Load() {
				return boom
			}
			return nil
		}
	})
	w.create() // the template is baked before anything fails
	w.deleteAll()
	for _, p := range points("create", w.createSteps()) {
		point.Store(p)
		if _, err := w.Create(t.Context(), specFor(api.NewID())); !errors.Is(err, boom) {
			t.Fatalf("%s: error %v, want boom", p, err)
		}
		if list, err := w.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("%s: %+v, %v", p, list, err)
		}
		if left := append(s.cgroups(), s.sandboxDirs()...); len(left) != 0 {
			t.Errorf("%s left behind:\n%s", p, strings.Join(left, "\n"))
		}
	}
	point.Store("")
	w.create()
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

func TestDeleteCancelsACreate(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	reached, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := start(t, s, func(c *Config) {
		c.Fault = func(at string) error {
			if at == "create.guest.before" {
				once.Do(func() { close(reached); <-held })
			}
			return nil
		}
	})
	id := api.NewID()
	created := make(chan error, 1)
	go func() {
		_, err := w.Create(context.WithoutCancel(t.Context()), specFor(id))
		created <- err
	}()
	select {
	case <-reached:
	case err := <-created:
		t.Fatalf("the create ended early: %v", err)
	}
	_, err := w.Get(t.Context(), id)
	wantCode(t, err, api.CodeSandboxNotFound)
	deleted := make(chan error, 1)
	go func() { deleted <- w.Delete(context.WithoutCancel(t.Context()), id) }()
	// The delete has cancelled the create once this create is refused with
	// it still in the table; holding on makes sure that it waits.
	select {
	case err := <-deleted:
		t.Errorf("the delete did not wait for the create: %v", err)
	case <-time.After(time.Second):
	}
	close(held)
	if err := <-deleted; err != nil {
		t.Errorf("delete: %v", err)
	}
	wantCode(t, <-created, api.CodeCanceled)
	w.stop()
	wantNothingLeft(t, s)
}
