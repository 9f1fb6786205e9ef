package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

// forks is where captures live that children are being made from.
func (a *Agent) forks() string { return filepath.Join(a.cfg.Dir, "forks") }

// forking is one fork.
type forking struct {
	parent   *sandbox
	specs    []host.Spec
	began    time.Time
	steps    *progress
	source   *source // from capture
	letGo    func() error
	children []host.Sandbox
}

// forkSteps is the whole of a fork. A crash within leaves children that are whole
// and none that is half-made.
func (a *Agent) forkSteps() []step[*forking] {
	return []step[*forking]{
		{"capture", a.captureParent, func(_ context.Context, f *forking) error { return f.letGo() }},
		{"children", a.makeChildren, a.removeChildren},
	}
}

// Fork captures a sandbox once and creates every child from that. All children
// run when it returns, or none exists.
func (a *Agent) Fork(ctx context.Context, parent string, children []host.Spec) ([]host.Sandbox, error) {
	began := time.Now()
	s, err := a.find(ctx, parent)
	if err != nil {
		return nil, err
	}
	specs, err := a.childSpecs(s, children)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := a.during(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	p := &progress{op: "fork", fault: a.cfg.Fault}
	f := &forking{parent: s, specs: specs, began: began, steps: p}
	err = runSteps(ctx, p, a.forkSteps(), f)
	sb := s.record().Sandbox
	a.observe(Observation{Op: "fork", Driver: sb.Driver, Template: sb.Template, Boot: api.BootFork, Took: time.Since(began), Steps: p.timings, Err: err})
	if err != nil {
		a.undo(ctx, p, parent, err)
		return nil, err
	}
	if err := f.letGo(); err != nil {
		a.log.Warn("the capture of a fork could not be removed; the next start sweeps it", "sandbox", parent, "error", err)
	}
	return f.children, nil
}

// childSpecs checks the children and fills in what they have of their parent.
func (a *Agent) childSpecs(parent *sandbox, children []host.Spec) ([]host.Spec, error) {
	if len(children) == 0 {
		return nil, api.Errorf(api.CodeInvalidRequest, "a fork has at least one child")
	}
	if free := a.cfg.Network.Free(); len(children) > free {
		return nil, api.Errorf(api.CodeCapacity, "%d children do not fit on this host, which has room for %d", len(children), free)
	}
	of := parent.record().Sandbox
	seen := map[string]bool{}
	specs := make([]host.Spec, len(children))
	for i, spec := range children {
		spec.Template = of.Template
		err := validate(spec)
		switch {
		case err != nil:
			return nil, err
		case spec.Snapshot != "":
			return nil, api.Errorf(api.CodeInvalidRequest, "a child starts from its parent and from no other snapshot")
		case seen[spec.ID]:
			return nil, api.Errorf(api.CodeInvalidRequest, "two children have the id %s", spec.ID)
		}
		seen[spec.ID] = true
		specs[i] = spec
	}
	return specs, nil
}

// captureParent takes the parent, which stands still for this and goes on.
func (a *Agent) captureParent(ctx context.Context, f *forking) error {
	if err := f.parent.take(ctx); err != nil {
		return err
	}
	defer f.parent.give()
	dir := filepath.Join(a.forks(), api.NewID())
	k, err := a.capture(ctx, f.parent, true, dir, takeMemory)
	if err != nil {
		return err
	}
	f.source = sourceOf(k, dir, api.BootFork)
	f.source.parent = f.parent.id
	f.letGo = f.source.lease()
	return nil
}

// makeChildren creates all children at once. The first failure ends the creation
// of the others, and those that were made.
func (a *Agent) makeChildren(ctx context.Context, f *forking) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	captured := f.steps.timings[0]
	f.children = make([]host.Sandbox, len(f.specs))
	var wg sync.WaitGroup
	var first error
	var once sync.Once
	for i, spec := range f.specs {
		wg.Go(func() {
			p := &progress{op: "create", fault: a.cfg.Fault, timings: []api.Step{captured}}
			child, err := a.make(ctx, &creation{spec: spec, began: f.began, source: f.source, steps: p})
			if err != nil {
				once.Do(func() {
					first = childError(spec.ID, err)
					cancel(api.Errorf(api.CodeCanceled, "another child of the fork could not be created"))
				})
				return
			}
			f.children[i] = child
		})
	}
	wg.Wait()
	if first != nil {
		return errors.Join(first, a.removeChildren(ctx, f))
	}
	return nil
}

// childError says which child it was.
func childError(id string, err error) error {
	e := api.AsError(err)
	return api.Wrap(e.Code, err, "child %s: %s", id, e.Message).WithHint(e.Hint)
}

// removeChildren ends the children that were made.
func (a *Agent) removeChildren(ctx context.Context, f *forking) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	errs := make([]error, len(f.children))
	var wg sync.WaitGroup
	for i, child := range f.children {
		s := a.lookup(child.ID)
		if s == nil {
			continue // it was not made, or someone has deleted it
		}
		wg.Go(func() { errs[i] = a.remove(ctx, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
