package agent

import (
	"context"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// keeper gives the store of snapshots.
func (a *Agent) keeper() (snapshot.Keeper, error) {
	if a.cfg.Kept == nil {
		return nil, api.Errorf(api.CodeUnsupported, "this host keeps no snapshots")
	}
	return a.cfg.Kept, nil
}

// keep is the store's own work.
func (a *Agent) keep(ctx context.Context) {
	if a.cfg.Kept == nil {
		return
	}
	if err := ignoreCanceled(a.cfg.Kept.Run(ctx)); err != nil && ctx.Err() == nil {
		a.log.Error("snapshots are not packed any more", "error", err)
	}
}

// staging is the ids of snapshots that are in the making: no two may write to the
// directory of one.
type staging struct {
	mu  sync.Mutex
	ids map[string]bool
}

// begin takes an id; one that is taken is refused with snapshot.exists.
func (s *staging) begin(id string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[id] {
		return nil, snapshotExists(id)
	}
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[id] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ids, id)
	}, nil
}

func snapshotExists(id string) error {
	return api.Errorf(api.CodeSnapshotExists, "snapshot %s exists", id)
}

func snapshotNotFound(id string) error {
	return api.Errorf(api.CodeSnapshotNotFound, "there is no snapshot %s", id)
}

// newSnapshot checks the id of a snapshot that is to be, and takes it.
func (a *Agent) newSnapshot(ctx context.Context, id string) (end func(), err error) {
	keeper, err := a.keeper()
	if err != nil {
		return nil, err
	}
	if !api.ValidSnapshotID(id) {
		return nil, api.Errorf(api.CodeInvalidRequest, "id is not a snapshot's id")
	}
	end, err = a.staging.begin(id)
	if err != nil {
		return nil, err
	}
	_, err = keeper.Get(ctx, id)
	if api.CodeOf(err) == api.CodeSnapshotNotFound {
		return end, nil
	}
	end()
	if err == nil {
		err = snapshotExists(id)
	}
	return nil, err
}

// picture is the taking of one snapshot.
type picture struct {
	sandbox *sandbox
	spec    host.SnapshotSpec
	kept    kept
	record  snapshot.Record
}

// pictureSteps is the whole of taking a snapshot. The sandbox has to stand still
// for the first alone.
func (a *Agent) pictureSteps() []step[*picture] {
	return []step[*picture]{
		{"capture", func(ctx context.Context, p *picture) (err error) {
			if err := p.sandbox.take(ctx); err != nil {
				return err
			}
			defer p.sandbox.give()
			how := taking(takeDisk)
			if p.spec.Memory {
				how = takeMemory
			}
			p.kept, err = a.capture(ctx, p.sandbox, p.spec.Memory, a.cfg.Kept.Stage(p.spec.ID), how)
			return err
		}, func(_ context.Context, p *picture) error {
			return a.cfg.Kept.Discard(p.spec.ID)
		}},
		{"keep", func(ctx context.Context, p *picture) (err error) {
			p.record, err = a.cfg.Kept.Keep(ctx, snapshot.Info{ID: p.spec.ID, CreatedAt: time.Now().UTC(), Data: p.kept.encode()})
			return err
		}, func(ctx context.Context, p *picture) error {
			return a.cfg.Kept.Delete(ctx, p.spec.ID)
		}},
	}
}

// Snapshot takes a snapshot of a running or paused sandbox, which goes on.
func (a *Agent) Snapshot(ctx context.Context, id string, spec host.SnapshotSpec) (host.Snapshot, error) {
	began := time.Now()
	s, err := a.find(ctx, id)
	if err != nil {
		return host.Snapshot{}, err
	}
	ctx, leave, err := a.during(ctx)
	if err != nil {
		return host.Snapshot{}, err
	}
	defer leave()
	end, err := a.newSnapshot(ctx, spec.ID)
	if err != nil {
		return host.Snapshot{}, err
	}
	defer end()
	pic := &picture{sandbox: s, spec: spec}
	p := &progress{op: "snapshot", fault: a.cfg.Fault}
	err = runSteps(ctx, p, a.pictureSteps(), pic)
	sb := s.record().Sandbox
	a.observe(Observation{Op: "snapshot", Driver: sb.Driver, Template: sb.Template, Took: time.Since(began), Steps: p.timings, Err: err})
	if err != nil {
		a.undo(ctx, p, s.id, err)
		return host.Snapshot{}, err
	}
	return view(pic.record)
}

// undo takes back what an operation on a sandbox that failed has done.
func (a *Agent) undo(ctx context.Context, p *progress, id string, cause error) {
	if left := p.undo.run(ctx); left != nil {
		a.log.Error("a failed operation could not be taken back whole; the next start sweeps what is left",
			"operation", p.op, "sandbox", id, "cause", cause, "error", left)
	}
}

// GetSnapshot gives one snapshot.
func (a *Agent) GetSnapshot(ctx context.Context, id string) (host.Snapshot, error) {
	rec, err := a.getKept(ctx, id)
	if err != nil {
		return host.Snapshot{}, err
	}
	return view(rec)
}

func (a *Agent) getKept(ctx context.Context, id string) (snapshot.Record, error) {
	if err := a.await(ctx); err != nil {
		return snapshot.Record{}, err
	}
	keeper, err := a.keeper()
	if err != nil {
		return snapshot.Record{}, err
	}
	if !api.ValidSnapshotID(id) {
		return snapshot.Record{}, snapshotNotFound(id)
	}
	return keeper.Get(ctx, id)
}

// Snapshots gives every snapshot that someone asked for; those of sleeping
// sandboxes are the agent's own business.
func (a *Agent) Snapshots(ctx context.Context) ([]host.Snapshot, error) {
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	out := []host.Snapshot{}
	if a.cfg.Kept == nil {
		return out, nil
	}
	list, err := a.cfg.Kept.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, rec := range list {
		if !api.ValidSnapshotID(rec.ID) {
			continue
		}
		v, err := view(rec)
		if err != nil {
			a.log.Warn("a snapshot cannot be read", "snapshot", rec.ID, "error", err)
			continue
		}
		out = append(out, v)
	}
	return out, nil
}

// DeleteSnapshot forgets a snapshot.
func (a *Agent) DeleteSnapshot(ctx context.Context, id string) error {
	if err := a.await(ctx); err != nil {
		return err
	}
	if a.cfg.Kept == nil || !api.ValidSnapshotID(id) {
		return nil
	}
	return a.cfg.Kept.Delete(ctx, id)
}
