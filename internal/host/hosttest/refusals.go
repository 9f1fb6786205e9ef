package hosttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var refusalChecks = []check{
	{"CreateOfAnIDThatExists", createOfAnIDThatExists},
	{"CreateOfOneIDTwiceAtOnce", createOfOneIDTwiceAtOnce},
	{"FailedCreateLeavesNothing", failedCreateLeavesNothing},
	{"CancelledCreateLeavesNothing", cancelledCreateLeavesNothing},
	{"UnknownIDsAreNotFound", unknownIDsAreNotFound},
	{"EndedContextIsAnError", endedContextIsAnError},
}

func createOfAnIDThatExists(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	again := spec
	again.Token = "another"
	_, err := s.host.Create(deadline(t), again)
	wantCode(t, "the second Create", err, api.CodeSandboxExists)
	g := s.guest(t, spec)
	g.wantHealthy(t)
	g.environment(t) // its token is still good
}

func createOfOneIDTwiceAtOnce(t *testing.T, s *suite) {
	spec := s.spec()
	s.deleteLater(t, spec.ID)
	ctx := deadline(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.host.Create(ctx, spec) })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
			continue
		}
		wantCode(t, "a Create that came second", err, api.CodeSandboxExists)
	}
	if made != 1 {
		t.Errorf("%d of %d were made", made, len(errs))
	}
	s.guest(t, spec).wantHealthy(t)
}

func failedCreateLeavesNothing(t *testing.T, s *suite) {
	cases := []struct {
		name  string
		spoil func(*host.Spec)
		want  api.Code
	}{
		{"unknown template", func(p *host.Spec) { p.Template = "no-such-template" }, api.CodeTemplateNotFound},
		{"unknown driver", func(p *host.Spec) { p.Driver = "no-such-driver" }, api.CodeDriverUnavailable},
		{"negative memory", func(p *host.Spec) { p.MemoryMB = -1 }, api.CodeInvalidRequest},
		{"no token", func(p *host.Spec) { p.Token = "" }, api.CodeInvalidRequest},
	}
	for _, c := range cases {
		spec := s.spec()
		c.spoil(&spec)
		_, err := s.host.Create(deadline(t), spec)
		wantCode(t, c.name, err, c.want)
		s.wantGone(t, spec.ID)
	}
	for _, id := range []string{"", "..", "../../etc/passwd", "UPPERCASEUPPERCASE12", "a b", "ä", "short"} {
		spec := s.spec()
		spec.ID = id
		_, err := s.host.Create(deadline(t), spec)
		wantCode(t, "the id "+id, err, api.CodeInvalidRequest)
	}
}

func cancelledCreateLeavesNothing(t *testing.T, s *suite) {
	for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond} {
		spec := s.spec()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := s.host.Create(ctx, spec)
		cancel()
		if err == nil { // it was quicker
			s.deleteLater(t, spec.ID)
			continue
		}
		wantCode(t, "Create when its time ran out", err, api.CodeTimeout, api.CodeCanceled)
		s.wantGone(t, spec.ID)
		s.create(t, spec)
	}
}

func unknownIDsAreNotFound(t *testing.T, s *suite) {
	ctx := deadline(t)
	for _, id := range []string{api.NewID(), "", "..", "a/b?c=d&id=e", "ä"} {
		_, err := s.host.Get(ctx, id)
		wantCode(t, "Get", err, api.CodeSandboxNotFound)
		wantCode(t, "Pause", s.host.Pause(ctx, id), api.CodeSandboxNotFound)
		wantCode(t, "Resume", s.host.Resume(ctx, id), api.CodeSandboxNotFound)
		_, err = s.host.Usage(ctx, id)
		wantCode(t, "Usage", err, api.CodeSandboxNotFound)
		_, err = s.host.Dial(ctx, id, api.InternalPort)
		wantCode(t, "Dial", err, api.CodeSandboxNotFound)
		if err := s.host.Delete(ctx, id); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
}

func endedContextIsAnError(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	spec := s.spec()
	_, err := s.host.Create(ctx, spec)
	wantCode(t, "Create", err, api.CodeCanceled)
	s.wantGone(t, spec.ID)
}
