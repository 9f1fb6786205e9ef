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
)

// Create makes a sandbox and returns when it runs. The path is one insert, the
// host's work, one update. If the client leaves before the answer the sandbox
// is removed again, since nobody knows its id.
func (s *Service) Create(ctx context.Context, who auth.Identity, req api.CreateSandbox) (api.Sandbox, error) {
	row, spec, err := s.plan(who, req)
	if err != nil {
		return api.Sandbox{}, err
	}
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
			s.undoCreate(ctx, row)
		}
		return api.Sandbox{}, err
	}
	if err := s.bringUp(ctx, row, spec); err != nil {
		s.undoCreate(ctx, row)
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

// undoCreate removes what a failed create left. What cannot be removed now is
// left to the next reconciliation, which finds the row.
func (s *Service) undoCreate(ctx context.Context, row *store.Sandbox) {
	ctx, cancel := finish(ctx)
	defer cancel()
	s.records.drop(row.ID)
	err := s.host.Delete(ctx, row.ID)
	if err == nil {
		err = s.store.DeleteSandbox(ctx, row.ID)
	}
	s.records.drop(row.ID)
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
func (s *Service) plan(who auth.Identity, req api.CreateSandbox) (*store.Sandbox, host.Spec, error) {
	if err := s.checkCreate(req); err != nil {
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
	at := now()
	row := &store.Sandbox{
		ID: api.NewID(), Org: who.Org, KeyPrefix: who.KeyPrefix, Template: req.Template, Driver: req.Driver,
		Status: api.StatusCreating, Spec: store.Spec{CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB},
		Metadata: req.Metadata, Token: newToken(), Persistent: req.Persistent, TTLSeconds: ttl,
		CreatedAt: at, UpdatedAt: at,
	}
	spec := host.Spec{
		ID: row.ID, Template: req.Template, Driver: req.Driver, CPU: req.CPU, MemoryMB: req.MemoryMB,
		DiskMB: req.DiskMB, Env: req.Env, Token: row.Token,
	}
	return row, spec, nil
}

func newToken() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
