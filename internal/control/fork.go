package control

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

const (
	maxChildren   = 1000
	forksTogether = 8
)

// errChildDeleted is why a fork is given up.
var errChildDeleted = errors.New("a child was deleted while it was being made")

// Fork makes children of a sandbox and returns when all run: from now, with one
// capture, or from one of its checkpoints. Either all of them come to be or
// none. A hibernated parent is woken to be forked from now.
func (s *Service) Fork(ctx context.Context, who auth.Identity, id string, req api.Fork) (api.ForkTree, error) {
	if req.Count == 0 {
		req.Count = 1
	}
	if err := s.checkFork(req); err != nil {
		return api.ForkTree{}, err
	}
	parent, origin, release, err := s.forkSource(ctx, who, id, req.Checkpoint)
	if err != nil {
		return api.ForkTree{}, err
	}
	defer release()
	network, err := s.childNetwork(ctx, &parent, req)
	if err != nil {
		return api.ForkTree{}, err
	}
	rows, specs := s.planFork(who, &parent, origin, network, req)
	ctx, end, err := s.beginFork(ctx, rows)
	if err != nil {
		return api.ForkTree{}, err
	}
	defer end()
	if err := s.makeChildren(ctx, &parent, rows, specs); err != nil {
		if errors.Is(context.Cause(ctx), errDeleted) {
			return api.ForkTree{}, api.Wrap(api.CodeSandboxNotFound, errChildDeleted, "a child of sandbox %s was deleted while the fork was under way", id)
		}
		s.log.Warn("fork failed", "sandbox_id", id, "org", who.Org, "children", len(rows), "error", err)
		if origin != nil {
			err = s.offer(ctx, origin, err)
		}
		return api.ForkTree{}, err
	}
	return s.announce(&parent, rows), nil
}

func (s *Service) checkFork(req api.Fork) error {
	if req.Count < 0 || req.Count > maxChildren {
		return invalid("count", "count must be between 1 and %d", maxChildren)
	}
	if quota := s.limits.SandboxesPerOrg; req.Count > quota {
		return api.Errorf(api.CodeQuotaSandboxes, "%d children were asked for and the quota is %d", req.Count, quota).With("quota", quota)
	}
	for _, err := range []error{
		checkMetadata(req.Metadata), checkEnv(req.Env), s.checkTTL(req.TTLSeconds),
		checkSizes(api.CreateSandbox{CPU: req.CPU, MemoryMB: req.MemoryMB}),
	} {
		if err != nil {
			return err
		}
	}
	if req.TTLSeconds != nil && req.Persistent != nil && *req.Persistent {
		return invalid("ttl_seconds", "a persistent sandbox has no ttl_seconds; give one of the two")
	}
	return nil
}

// forkSource gives the parent, and the checkpoint if one was named. Until
// release it is the fork's turn of the parent, or the checkpoint is in use.
func (s *Service) forkSource(ctx context.Context, who auth.Identity, id, checkpoint string) (parent store.Sandbox, origin *store.Snapshot, release func(), err error) {
	if checkpoint == "" {
		release, parent, err = s.lockAwake(ctx, who, id)
		return parent, nil, release, err
	}
	if parent, err = s.row(ctx, who, id); err != nil {
		return parent, nil, nil, err
	}
	if !alive(parent.Status) {
		return parent, nil, nil, notAlive(&parent)
	}
	snap, release, err := s.pinCheckpoint(ctx, who, id, checkpoint)
	return parent, &snap, release, err
}

// planFork makes the rows of the children and what the host is asked for. Sizes
// that the host is not told are the parent's, or the checkpoint's.
func (s *Service) planFork(who auth.Identity, parent *store.Sandbox, origin *store.Snapshot, network store.Network, req api.Fork) ([]*store.Sandbox, []host.Spec) {
	tree, at := api.NewID(), now()
	size := parent.Spec
	if origin != nil {
		size = origin.Spec
	}
	if req.CPU != 0 {
		size.CPU = req.CPU
	}
	if req.MemoryMB != 0 {
		size.MemoryMB = req.MemoryMB
	}
	rows, specs := make([]*store.Sandbox, req.Count), make([]host.Spec, req.Count)
	for i := range rows {
		row := &store.Sandbox{
			ID: api.NewID(), Org: parent.Org, KeyPrefix: who.KeyPrefix, Template: parent.Template, Driver: parent.Driver, Host: parent.Host,
			Status: api.StatusCreating, Spec: size, Metadata: maps.Clone(parent.Metadata), Token: newToken(),
			CreatedAt: at, UpdatedAt: at, ParentID: parent.ID, TreeID: tree, Idle: parent.Idle, Checkpoints: parent.Checkpoints,
			Network: network,
		}
		if req.Metadata != nil {
			row.Metadata = maps.Clone(req.Metadata)
		}
		row.Persistent, row.TTLSeconds = s.childLife(parent, req)
		specs[i] = host.Spec{
			ID: row.ID, Template: row.Template, Driver: row.Driver, CPU: req.CPU, MemoryMB: req.MemoryMB, Env: req.Env, Token: row.Token,
			Network: hostNetwork(network),
		}
		if origin != nil {
			row.SnapshotID = origin.ID
			startFrom(&specs[i], origin)
		}
		rows[i] = row
	}
	return rows, specs
}

// childNetwork is that of the children: their parent's, without its name, unless
// the fork says otherwise.
func (s *Service) childNetwork(ctx context.Context, parent *store.Sandbox, req api.Fork) (store.Network, error) {
	if req.Network == nil {
		n := parent.Network
		n.Name = ""
		return n, nil
	}
	if req.Network.Name != "" && req.Count > 1 {
		return store.Network{}, invalid("network.name", "one name cannot be that of %d children", req.Count)
	}
	n, err := s.networkOf(ctx, parent.Org, req.Network)
	n.Rules = inherit(n.Rules, parent.Network.Rules)
	return n, err
}

// childLife is how long a child lives: as its parent was given to, unless the
// fork says otherwise.
func (s *Service) childLife(parent *store.Sandbox, req api.Fork) (persistent bool, ttl int) {
	persistent, ttl = parent.Persistent, parent.TTLSeconds
	if req.Persistent != nil {
		persistent = *req.Persistent
	}
	if req.TTLSeconds != nil {
		persistent, ttl = false, *req.TTLSeconds
	}
	if persistent {
		return true, 0
	}
	if ttl == 0 {
		ttl = s.limits.DefaultTTL
	}
	return false, ttl
}

// beginFork notes the children as being made and takes their turns, so that one
// who deletes a child meanwhile gives up the fork and waits for its undoing.
func (s *Service) beginFork(ctx context.Context, rows []*store.Sandbox) (_ context.Context, end func(), err error) {
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	ctx, forget := s.creations.begin(ctx, ids...)
	releases := make([]func(), 0, len(rows))
	end = func() {
		for _, release := range releases {
			release()
		}
		forget()
	}
	for _, id := range ids {
		release, err := s.locks.take(ctx, id)
		if err != nil {
			end()
			return nil, nil, err
		}
		releases = append(releases, release)
	}
	return ctx, end, nil
}

// makeChildren brings up all children or undoes what there is of them.
func (s *Service) makeChildren(ctx context.Context, parent *store.Sandbox, rows []*store.Sandbox, specs []host.Spec) error {
	err := s.store.CreateSandboxes(ctx, rows, s.limits.SandboxesPerOrg)
	if err != nil && ctx.Err() == nil {
		return s.taken(rows[0], err)
	}
	if err == nil {
		err = s.bringUpChildren(ctx, parent, rows, specs)
	}
	if err == nil && ctx.Err() != nil {
		err = left(ctx)
	}
	if err != nil {
		s.undoCreates(ctx, rows)
	}
	return err
}

// bringUpChildren has the host make the children and writes down what came of
// them.
func (s *Service) bringUpChildren(ctx context.Context, parent *store.Sandbox, rows []*store.Sandbox, specs []host.Spec) error {
	fork := s.host.Fork
	if specs[0].Snapshot != "" {
		fork = s.createAll
	}
	got, err := fork(ctx, parent.ID, specs)
	if err != nil {
		return err
	}
	if len(got) != len(rows) {
		return api.Errorf(api.CodeInternal, "the host made %d of %d children", len(got), len(rows))
	}
	byID := map[string]host.Sandbox{}
	for _, b := range got {
		byID[b.ID] = b
	}
	at := now()
	for _, row := range rows {
		child, ok := byID[row.ID]
		if !ok {
			return api.Errorf(api.CodeInternal, "the host did not make child %s", row.ID)
		}
		adopt(row, child)
		row.Status, row.UpdatedAt = api.StatusRunning, at
		if !row.Persistent {
			row.ExpiresAt = at.Add(time.Duration(row.TTLSeconds) * time.Second)
		}
	}
	if err := s.store.UpdateSandboxes(ctx, rows); err != nil {
		return err
	}
	for _, row := range rows {
		s.remember(row)
	}
	return nil
}

// createAll is host.Fork from a snapshot: it creates every one of specs, some at
// a time, and gives up at the first that fails.
func (s *Service) createAll(ctx context.Context, _ string, specs []host.Spec) ([]host.Sandbox, error) {
	got := make([]host.Sandbox, len(specs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(forksTogether)
	for i, spec := range specs {
		g.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			got[i], err = s.host.Create(ctx, spec)
			return err
		})
	}
	return got, g.Wait()
}

// announce tells of a fork that is done and gives its answer.
func (s *Service) announce(parent *store.Sandbox, rows []*store.Sandbox) api.ForkTree {
	tree := api.ForkTree{TreeID: rows[0].TreeID, ParentID: parent.ID, Children: make([]api.Sandbox, len(rows))}
	data := map[string]string{"tree_id": tree.TreeID, "children": strconv.Itoa(len(rows))}
	s.emit(parent, EventForked, data)
	for i, row := range rows {
		s.reaper.mind(row.ExpiresAt)
		s.emit(row, EventRunning, map[string]string{"boot_mode": string(row.Boot.Mode)})
		tree.Children[i] = external(row)
	}
	if len(rows) > 1 {
		s.emit(parent, EventTreeCompleted, data)
	}
	return tree
}
