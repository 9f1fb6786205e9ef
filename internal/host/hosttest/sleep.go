package hosttest

import (
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var sleepChecks = []check{
	{"HibernateKeepsAllAndWakeBringsItBack", hibernateKeepsAll},
	{"HibernateOfAPausedSandbox", hibernateOfAPausedSandbox},
	{"WakesShareOne", wakesShareOne},
	{"HibernatedSandboxCanBeDeleted", hibernatedSandboxCanBeDeleted},
	{"HibernatedSandboxDoesNothing", hibernatedSandboxDoesNothing},
}

// asleep makes a sandbox that is hibernated.
func (s *suite) asleep(t *testing.T, content string) host.Spec {
	t.Helper()
	spec := s.spec()
	spec.Env = map[string]string{"KEPT": "yes"}
	s.create(t, spec)
	s.guest(t, spec).write(t, mark, content)
	if err := s.host.Hibernate(deadline(t), spec.ID); err != nil {
		t.Fatalf("Hibernate: %v", err)
	}
	return spec
}

func (s *suite) wake(t *testing.T, id string) host.Sandbox {
	t.Helper()
	sb, err := s.host.Wake(deadline(t), id)
	if err != nil {
		t.Fatalf("Wake: %v", err)
	}
	return sb
}

func hibernateKeepsAll(t *testing.T, s *suite) {
	spec := s.asleep(t, "before")
	for round := range 3 {
		if err := s.host.Hibernate(deadline(t), spec.ID); err != nil {
			t.Fatalf("Hibernate of a hibernated sandbox: %v", err)
		}
		s.wantState(t, spec.ID, host.StateHibernated)
		sb := s.wake(t, spec.ID)
		if sb.ID != spec.ID || sb.State != host.StateRunning || sb.BootMode != api.BootWake || sb.BootMS <= 0 {
			t.Errorf("round %d: %+v", round, sb)
		}
		again := s.wake(t, spec.ID)
		if again.State != host.StateRunning || again.GuestIP != sb.GuestIP || !again.CreatedAt.Equal(sb.CreatedAt) {
			t.Errorf("Wake of a running sandbox gives %+v, it is %+v", again, sb)
		}
		s.wantState(t, spec.ID, host.StateRunning)
		g := s.guest(t, spec)
		g.wantFile(t, mark, "before")
		g.wantTokenNeeded(t)
		if env := g.environment(t); env["KEPT"] != "yes" {
			t.Errorf("environment %q", env)
		}
		if err := s.host.Hibernate(deadline(t), spec.ID); err != nil {
			t.Fatalf("Hibernate in round %d: %v", round, err)
		}
	}
}

func hibernateOfAPausedSandbox(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	s.guest(t, spec).write(t, mark, "paused")
	if err := s.host.Pause(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.host.Hibernate(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	s.wantState(t, spec.ID, host.StateHibernated)
	s.wake(t, spec.ID)
	s.wantState(t, spec.ID, host.StateRunning)
	s.guest(t, spec).wantFile(t, mark, "paused")
}

func wakesShareOne(t *testing.T, s *suite) {
	spec := s.asleep(t, "shared")
	ctx := deadline(t)
	var wg sync.WaitGroup
	boxes := make([]host.Sandbox, 20)
	for i := range boxes {
		wg.Go(func() {
			var err error
			if boxes[i], err = s.host.Wake(ctx, spec.ID); err != nil {
				t.Errorf("Wake: %v", err)
			}
		})
	}
	wg.Wait()
	for _, sb := range boxes {
		// One wake has one duration.
		if sb.State != host.StateRunning || sb.BootMS != boxes[0].BootMS || sb.GuestIP != boxes[0].GuestIP {
			t.Errorf("one caller got %+v, another %+v", sb, boxes[0])
		}
	}
	s.guest(t, spec).wantFile(t, mark, "shared")
}

func hibernatedSandboxCanBeDeleted(t *testing.T, s *suite) {
	spec := s.asleep(t, "")
	for range 2 {
		if err := s.host.Delete(deadline(t), spec.ID); err != nil {
			t.Fatal(err)
		}
	}
	s.wantGone(t, spec.ID)
	_, err := s.host.Wake(deadline(t), spec.ID)
	wantCode(t, "Wake after Delete", err, api.CodeSandboxNotFound)
}

// hibernatedSandboxDoesNothing asks what only a sandbox in memory can do: it is
// refused, and does not wake.
func hibernatedSandboxDoesNothing(t *testing.T, s *suite) {
	spec := s.asleep(t, "still")
	ctx := deadline(t)
	_, err := s.host.Dial(ctx, spec.ID, api.InternalPort)
	wantCode(t, "Dial", err, api.CodeSandboxState)
	wantCode(t, "Pause", s.host.Pause(ctx, spec.ID), api.CodeSandboxState)
	wantCode(t, "Resume", s.host.Resume(ctx, spec.ID), api.CodeSandboxState)
	_, err = s.host.Fork(ctx, spec.ID, s.children(t, 1))
	wantCode(t, "Fork", err, api.CodeSandboxState)
	_, err = s.host.Snapshot(ctx, spec.ID, s.snapshotSpec(t, true))
	wantCode(t, "Snapshot", err, api.CodeSandboxState)
	_, err = s.host.Create(ctx, spec)
	wantCode(t, "Create of its id", err, api.CodeSandboxExists)
	s.wantState(t, spec.ID, host.StateHibernated)
	s.wake(t, spec.ID)
	s.guest(t, spec).wantFile(t, mark, "still")
}
