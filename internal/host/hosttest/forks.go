package hosttest

import (
	"strconv"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var forkChecks = []check{
	{"ForkGivesChildrenThatDiffer", forkGivesChildrenThatDiffer},
	{"ForkOfAPausedSandbox", forkOfAPausedSandbox},
	{"ForkIsAllOrNone", forkIsAllOrNone},
	{"ForkOfAnUnknownSandbox", forkOfAnUnknownSandbox},
	{"ChildrenOutliveTheirParent", childrenOutliveTheirParent},
}

const mark = "/home/user/mark"

// children makes specs of children, which the end of the check deletes.
func (s *suite) children(t *testing.T, n int) []host.Spec {
	t.Helper()
	specs := make([]host.Spec, n)
	for i := range specs {
		specs[i] = host.Spec{ID: api.NewID(), Token: "token-" + api.NewID(), Env: map[string]string{"CHILD": strconv.Itoa(i)}}
		s.deleteLater(t, specs[i].ID)
	}
	return specs
}

func (s *suite) fork(t *testing.T, parent string, specs []host.Spec) []host.Sandbox {
	t.Helper()
	out, err := s.host.Fork(deadline(t), parent, specs)
	if err != nil {
		t.Fatalf("Fork: %v", err)
	}
	if len(out) != len(specs) {
		t.Fatalf("Fork gives %d children of %d", len(out), len(specs))
	}
	return out
}

func forkGivesChildrenThatDiffer(t *testing.T, s *suite) {
	spec := s.spec()
	spec.Env = map[string]string{"PARENT": "yes"}
	parent := s.create(t, spec)
	g := s.guest(t, spec)
	g.write(t, mark, "of the parent")
	specs := s.children(t, 3)
	specs[2].MemoryMB = parent.MemoryMB + 128
	addresses := map[string]bool{parent.GuestIP: true}
	for i, sb := range s.fork(t, spec.ID, specs) {
		if sb.ID != specs[i].ID || sb.State != host.StateRunning || sb.BootMode != api.BootFork || sb.BootMS <= 0 || sb.Error != nil {
			t.Errorf("child %d: %+v", i, sb)
		}
		memory := parent.MemoryMB
		if specs[i].MemoryMB > 0 {
			memory = specs[i].MemoryMB
		}
		if sb.Template != parent.Template || sb.Driver != parent.Driver || sb.CPU != parent.CPU || sb.MemoryMB != memory || sb.DiskMB != parent.DiskMB {
			t.Errorf("child %d is %+v, its parent %+v", i, sb, parent)
		}
		if addresses[sb.GuestIP] {
			t.Errorf("child %d has the address %q of another", i, sb.GuestIP)
		}
		addresses[sb.GuestIP] = true
		s.wantState(t, sb.ID, host.StateRunning)
		child := s.guest(t, specs[i])
		child.wantFile(t, mark, "of the parent")
		child.write(t, mark, "of a child")
		child.wantTokenNeeded(t)
		if env := child.environment(t); env["PARENT"] != "yes" || env["CHILD"] != strconv.Itoa(i) {
			t.Errorf("child %d has the environment %q", i, env)
		}
		if status, _ := child.do(t, "GET", "/envs", spec.Token, nil); status != 401 {
			t.Errorf("child %d takes its parent's token: %d", i, status)
		}
	}
	s.wantState(t, spec.ID, host.StateRunning)
	g.wantFile(t, mark, "of the parent")
	if env := g.environment(t); env["CHILD"] != "" {
		t.Errorf("the parent has a child's environment: %q", env)
	}
}

func forkOfAPausedSandbox(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	s.guest(t, spec).write(t, mark, "paused")
	if err := s.host.Pause(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	specs := s.children(t, 1)
	s.fork(t, spec.ID, specs)
	s.wantState(t, specs[0].ID, host.StateRunning)
	s.guest(t, specs[0]).wantFile(t, mark, "paused")
	s.wantState(t, spec.ID, host.StatePaused)
	if err := s.host.Resume(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	s.guest(t, spec).wantFile(t, mark, "paused")
}

func forkIsAllOrNone(t *testing.T, s *suite) {
	spec, other := s.spec(), s.spec()
	s.create(t, spec)
	s.create(t, other)
	taken := s.children(t, 3)
	taken[1].ID = other.ID
	twice := s.children(t, 2)
	twice[1].ID = twice[0].ID
	odd := s.children(t, 2)
	odd[1].ID = "../odd"
	cases := []struct {
		name     string
		children []host.Spec
		want     []api.Code
	}{
		{"an id that exists", taken, []api.Code{api.CodeSandboxExists}},
		{"one id twice", twice, []api.Code{api.CodeSandboxExists, api.CodeInvalidRequest}},
		{"an id that is none", odd, []api.Code{api.CodeInvalidRequest}},
	}
	for _, c := range cases {
		_, err := s.host.Fork(deadline(t), spec.ID, c.children)
		wantCode(t, "Fork with "+c.name, err, c.want...)
		for _, child := range c.children {
			if child.ID != other.ID && child.ID != "../odd" {
				s.wantGone(t, child.ID)
			}
		}
	}
	s.wantState(t, other.ID, host.StateRunning)
	s.guest(t, other).environment(t) // its token is still good
	s.wantState(t, spec.ID, host.StateRunning)
	s.guest(t, spec).wantHealthy(t)
}

func forkOfAnUnknownSandbox(t *testing.T, s *suite) {
	specs := s.children(t, 1)
	for _, id := range []string{api.NewID(), "", ".."} {
		_, err := s.host.Fork(deadline(t), id, specs)
		wantCode(t, "Fork", err, api.CodeSandboxNotFound)
	}
	s.wantGone(t, specs[0].ID)
}

func childrenOutliveTheirParent(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	s.guest(t, spec).write(t, mark, "inherited")
	specs := s.children(t, 1)
	s.fork(t, spec.ID, specs)
	if err := s.host.Delete(deadline(t), spec.ID); err != nil {
		t.Fatal(err)
	}
	s.wantGone(t, spec.ID)
	s.guest(t, specs[0]).wantFile(t, mark, "inherited")
	grandchildren := s.children(t, 1)
	s.fork(t, specs[0].ID, grandchildren)
	s.guest(t, grandchildren[0]).wantFile(t, mark, "inherited")
}
