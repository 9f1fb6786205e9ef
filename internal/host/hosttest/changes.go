package hosttest

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var changeChecks = []check{
	{"ChangesTellOfADeathAndNotOfADelete", changesTellOfADeath},
	{"ChangesEndWithTheirContext", changesEndWithTheirContext},
}

// changesTellOfADeath kills the runtime of one sandbox after deleting another:
// the first word about either must be of the one that died by itself.
func changesTellOfADeath(t *testing.T, s *suite) {
	deleted, dead := s.spec(), s.spec()
	s.create(t, deleted)
	s.create(t, dead)
	ctx := deadline(t)
	changes, err := s.host.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.host.Delete(ctx, deleted.ID); err != nil {
		t.Fatal(err)
	}
	u, err := s.host.Usage(ctx, dead.ID)
	if err != nil || u.PID <= 1 {
		t.Fatalf("pid %d, %v", u.PID, err)
	}
	if err := syscall.Kill(u.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		c, ok := <-changes
		if !ok {
			t.Fatal("the stream of changes ended before the death was told")
		}
		if c.SandboxID == deleted.ID {
			t.Error("a delete that was asked for is told as a change")
		}
		if c.SandboxID != dead.ID {
			continue
		}
		if c.State != host.StateFailed || c.Error == nil || c.Error.Code != api.CodeSandboxDied {
			t.Errorf("change %+v", c)
		}
		break
	}
	sb, err := s.host.Get(ctx, dead.ID)
	if err != nil || sb.State != host.StateFailed || sb.Error == nil || sb.Error.Code != api.CodeSandboxDied {
		t.Errorf("record %+v, %v", sb, err)
	}
	_, err = s.host.Dial(ctx, dead.ID, api.InternalPort)
	wantCode(t, "Dial to a sandbox that died", err, api.CodeSandboxDied, api.CodeSandboxState)
	wantCode(t, "Resume of a sandbox that died", s.host.Resume(ctx, dead.ID), api.CodeSandboxDied, api.CodeSandboxState)
}

func changesEndWithTheirContext(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := s.host.Changes(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	cancel()
	late := time.After(patience)
	for {
		select {
		case _, ok := <-changes:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the stream of changes goes on after its context ended")
		}
	}
}
