// Package hosttest is what every host.Host must do, as tests: one check for
// each rule of package host. It runs against real sandboxes, since the rules are
// about them, and passes the same over the wire and without.
package hosttest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// patience bounds what a check waits for. It is there to end a hang; no rule is
// about time.
const patience = 2 * time.Minute

// check is one rule.
type check struct {
	name string
	run  func(t *testing.T, s *suite)
}

// suite is the host under test and what checks share.
type suite struct {
	host     host.Host
	template string

	withoutSnapshots bool
}

// Option changes what Run checks.
type Option func(*suite)

// WithoutSnapshots leaves out everything about snapshots, forks and sleep, for a
// host that has none of it.
func WithoutSnapshots() Option { return func(s *suite) { s.withoutSnapshots = true } }

// Run checks a host. newHost gives one that is on this machine and offers a
// template, "base" or else the first it lists, that is ready or will be. It is
// called once; the checks use sandboxes of their own and delete them.
func Run(t *testing.T, newHost func(t *testing.T) host.Host, options ...Option) {
	s := &suite{host: newHost(t)}
	for _, o := range options {
		o(s)
	}
	ctx := deadline(t)
	list, err := s.host.Templates(ctx)
	if err != nil {
		t.Fatalf("Templates: %v", err)
	}
	for _, one := range list {
		if s.template == "" || one.Name == "base" {
			s.template = one.Name
		}
	}
	if s.template == "" {
		t.Fatal("the host offers no template")
	}
	checks := slices.Concat(recordChecks, refusalChecks, dialChecks, changeChecks, networkChecks)
	if !s.withoutSnapshots {
		checks = slices.Concat(checks, forkChecks, sleepChecks, snapshotChecks, fileChecks)
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

func (s *suite) spec() host.Spec {
	return host.Spec{ID: api.NewID(), Template: s.template, Token: "token-" + api.NewID()}
}

// create makes a sandbox that the end of the check deletes.
func (s *suite) create(t *testing.T, spec host.Spec) host.Sandbox {
	t.Helper()
	s.deleteLater(t, spec.ID)
	sb, err := s.host.Create(deadline(t), spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return sb
}

func (s *suite) deleteLater(t *testing.T, id string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := s.host.Delete(ctx, id); err != nil {
			t.Errorf("Delete: %v", err)
		}
	})
}

// wantState asserts what Get and List say of a sandbox, and gives its record.
func (s *suite) wantState(t *testing.T, id string, want host.State) host.Sandbox {
	t.Helper()
	sb, err := s.host.Get(deadline(t), id)
	if err != nil || sb.ID != id || sb.State != want {
		t.Errorf("%s is %q, %v; want %q", id, sb.State, err, want)
	}
	list, err := s.host.List(deadline(t))
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	i := slices.IndexFunc(list, func(sb host.Sandbox) bool { return sb.ID == id })
	if i < 0 || list[i].State != want {
		t.Errorf("%s is not %q in List", id, want)
	}
	return sb
}

// wantGone waits until nothing is known of an id: the undo of a create that was
// given up may outlast the call.
func (s *suite) wantGone(t *testing.T, id string) {
	t.Helper()
	ctx := deadline(t)
	for {
		_, err := s.host.Get(ctx, id)
		if api.CodeOf(err) == api.CodeSandboxNotFound {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the sandbox is still known: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if s.listed(t, id) {
		t.Error("a sandbox that Get does not know is in List")
	}
}

func (s *suite) listed(t *testing.T, id string) bool {
	t.Helper()
	list, err := s.host.List(deadline(t))
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return slices.ContainsFunc(list, func(sb host.Sandbox) bool { return sb.ID == id })
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func wantCode(t *testing.T, what string, err error, want ...api.Code) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, want an error with a code", what, err)
		return
	}
	if !slices.Contains(want, e.Code) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if e.Message == "" {
		t.Errorf("%s: the error has no message", what)
	}
}
