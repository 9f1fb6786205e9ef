package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

// Create makes a sandbox and returns when it runs. The path is one insert, the
// host's work, one update. If the client leaves before the answer the sandbox
// is removed again, since nobody knows its id.
func (s *Service) Create(ctx context.Context, who auth.Identity, req api.CreateSandbox) (api.Sandbox, error) {
	return s.makeSandbox(ctx, who, store.Idempotency{}, req)
}

func (s *Service) makeSandbox(ctx context.Context, who auth.Identity, once store.Idempotency, req api.CreateSandbox) (api.Sandbox, error) {
	row, spec, err := s.plan(ctx, who, req)
	if err != nil {
		return api.Sandbox{}, err
	}
	row.Idempotency = once
	if req.FromSnapshot != "" {
		snap, unpin, err := s.originOf(ctx, who, req, row, &spec)
		if err != nil {
			return api.Sandbox{}, err
		}
		defer unpin()
		b, err := s.create(ctx, row, spec)
		return b, s.offer(ctx, snap, err)
	}
	return s.create(ctx, row, spec)
}

// create makes the sandbox of a row.
func (s *Service) create(ctx context.Context, row *store.Sandbox, spec host.Spec) (_ api.Sandbox, err error) {
	if row.Host, err = s.hostName(ctx); err != nil {
		return api.Sandbox{}, err
	}
	ctx, end := s.creations.begin(ctx, row.ID)
	defer end()
	release, err := s.locks.take(ctx, row.ID)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer release()
	if err := s.store.CreateSandbox(ctx, row, s.limits.SandboxesPerOrg); err != nil {
		if ctx.Err() != nil { // the insert may have been made
			s.undoCreates(ctx, []*store.Sandbox{row})
		}
		return api.Sandbox{}, s.taken(row, err)
	}
	if err := s.bringUp(ctx, row, spec); err != nil {
		s.undoCreates(ctx, []*store.Sandbox{row})
		if errors.Is(context.Cause(ctx), errDeleted) {
			return api.Sandbox{}, api.Wrap(api.CodeSandboxNotFound, errDeleted, "sandbox %s was deleted while it was being created", row.ID)
		}
		s.log.Warn("create failed", "sandbox_id", row.ID, "org", row.Org, "template", row.Template, "error", err)
		s.emit(row, EventFailed, errorData(err))
		return api.Sandbox{}, err
	}
	s.reaper.mind(row.ExpiresAt)
	s.emit(row, EventRunning, map[string]string{"boot_mode": string(row.Boot.Mode)})
	return external(row), nil
}

// bringUp has the host create the sandbox and writes down what came of it.
func (s *Service) bringUp(ctx context.Context, row *store.Sandbox, spec host.Spec) error {
	got, err := s.host.Create(ctx, spec)
	if err != nil {
		return err
	}
	adopt(row, got)
	row.Status = api.StatusRunning
	if !row.Persistent {
		// Life begins when it runs: a template may have been built first.
		row.ExpiresAt = now().Add(time.Duration(row.TTLSeconds) * time.Second)
	}
	if err := s.save(ctx, row); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return api.Wrap(api.CodeCanceled, err, "the client left before the sandbox was ready")
	}
	return nil
}

// adopt takes over what the host says of a sandbox.
func adopt(row *store.Sandbox, got host.Sandbox) {
	row.Driver, row.GuestIP = got.Driver, got.GuestIP
	row.Spec = store.Spec{CPU: got.CPU, MemoryMB: got.MemoryMB, DiskMB: got.DiskMB}
	row.Boot = store.Boot{Mode: got.BootMode, MS: got.BootMS, Steps: got.BootSteps}
}

// undoCreates removes what a failed create or fork left. What cannot be removed
// now is left to the next reconciliation, which finds the row.
func (s *Service) undoCreates(ctx context.Context, rows []*store.Sandbox) {
	ctx, cancel := finish(ctx)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(reapTogether)
	for _, row := range rows {
		g.Go(func() error { s.undoCreate(ctx, row); return nil })
	}
	_ = g.Wait() // its functions give no errors
}

func (s *Service) undoCreate(ctx context.Context, row *store.Sandbox) {
	s.records.drop(row.ID)
	err := s.host.Delete(ctx, row.ID)
	if err == nil {
		err = s.store.ForgetSandboxes(ctx, []string{row.ID})
	}
	s.records.drop(row.ID)
	s.idler.forget(row.ID, &s.uses)
	if err != nil {
		s.log.Warn("a failed create is cleaned later", "sandbox_id", row.ID, "error", err)
		s.requireRemoval(ctx, row)
	}
}

// requireRemoval marks a row so that the next reconciliation removes it.
func (s *Service) requireRemoval(ctx context.Context, row *store.Sandbox) {
	row.Status = api.StatusDeleting
	if err := s.save(ctx, row); err != nil {
		s.log.Warn("the state of a sandbox was not written", "sandbox_id", row.ID, "error", err)
	}
}

// plan checks a request and makes of it the row and what the host is asked for.
func (s *Service) plan(ctx context.Context, who auth.Identity, req api.CreateSandbox) (*store.Sandbox, host.Spec, error) {
	if err := s.checkCreate(req); err != nil {
		return nil, host.Spec{}, err
	}
	var short *int
	if req.IdleTimeout != 0 {
		short = &req.IdleTimeout
	}
	idle, err := idlePolicy(nil, req.Idle, short, "idle_timeout_seconds")
	if err != nil {
		return nil, host.Spec{}, err
	}
	ttl := s.limits.DefaultTTL
	if req.TTLSeconds != nil {
		ttl = *req.TTLSeconds
	}
	if req.Persistent {
		ttl = 0
	}
	if req.Template == "" {
		req.Template = "base"
	}
	if req.Driver == "auto" {
		req.Driver = ""
	}
	asked, err := askedNetwork(req)
	if err != nil {
		return nil, host.Spec{}, err
	}
	network, err := s.networkOf(ctx, who.Org, asked)
	if err != nil {
		return nil, host.Spec{}, err
	}
	at := now()
	row := &store.Sandbox{
		ID: api.NewID(), Org: who.Org, KeyPrefix: who.KeyPrefix, Template: req.Template, Driver: req.Driver,
		Status: api.StatusCreating, Spec: store.Spec{CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB},
		Metadata: req.Metadata, Token: newToken(), Persistent: req.Persistent, TTLSeconds: ttl,
		CreatedAt: at, UpdatedAt: at, Idle: idle, Network: network,
	}
	if req.Checkpoints != nil {
		row.Checkpoints = *req.Checkpoints
	}
	spec := host.Spec{
		ID: row.ID, Template: req.Template, Driver: req.Driver, CPU: req.CPU, MemoryMB: req.MemoryMB,
		DiskMB: req.DiskMB, Env: req.Env, Token: row.Token, Network: hostNetwork(network),
	}
	return row, spec, nil
}

// originOf finds the snapshot that a create starts from, and makes the row and
// what the host is asked for its own. It stays at least until release.
func (s *Service) originOf(ctx context.Context, who auth.Identity, req api.CreateSandbox, row *store.Sandbox, spec *host.Spec) (*store.Snapshot, func(), error) {
	snap, release, err := s.pinSnapshot(ctx, who, req.FromSnapshot)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case req.Template != "" && req.Template != snap.Template:
		err = invalid("template", "snapshot %s was taken of template %s; leave the template out", snap.ID, snap.Template)
	case req.Driver != "" && req.Driver != "auto" && req.Driver != snap.Driver:
		err = invalid("driver", "snapshot %s was taken with driver %s; leave the driver out", snap.ID, snap.Driver)
	case req.DiskMB != 0 && req.DiskMB != snap.Spec.DiskMB:
		err = invalid("disk_mb", "the disk of snapshot %s has %d MiB; leave disk_mb out", snap.ID, snap.Spec.DiskMB)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	startFrom(spec, &snap)
	row.Network.Rules = inherit(row.Network.Rules, snap.Network.Rules)
	spec.Network = hostNetwork(row.Network)
	row.SnapshotID, row.Template, row.Driver = snap.ID, spec.Template, spec.Driver
	row.Spec = store.Spec{CPU: spec.CPU, MemoryMB: spec.MemoryMB, DiskMB: spec.DiskMB}
	return &snap, release, nil
}

// startFrom makes a create start from a snapshot. Sizes that were not given are
// the snapshot's.
func startFrom(spec *host.Spec, snap *store.Snapshot) {
	spec.Snapshot, spec.Template, spec.Driver, spec.DiskMB = snap.ID, snap.Template, snap.Driver, snap.Spec.DiskMB
	if spec.CPU == 0 {
		spec.CPU = snap.Spec.CPU
	}
	if spec.MemoryMB == 0 {
		spec.MemoryMB = snap.Spec.MemoryMB
	}
}

func newToken() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
