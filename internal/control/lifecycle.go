package control

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// The rules of time. A time to live counts from the moment it is set: at first
// when the sandbox runs, then at every change. It runs on while the sandbox is
// paused or hibernated and deletes it then too; neither waking it nor rolling it
// back prolongs it. A persistent sandbox has none and never expires. A sandbox
// with an idle policy, persistent or not, hibernates after that long without
// use, which changes nothing about its time to live. A child is given the
// setting of its parent anew. The row of a failed sandbox stays for an hour.

// Lifecycle says how long a sandbox lives.
func (s *Service) Lifecycle(ctx context.Context, who auth.Identity, id string) (api.Lifecycle, error) {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	return lifecycle(&row), nil
}

// SetLifecycle changes how long a sandbox lives, when it goes to sleep and which
// checkpoints it keeps. Absent fields stay, but a ttl_seconds alone ends
// persistence, and persistence that ends without a ttl_seconds gives the default
// one.
func (s *Service) SetLifecycle(ctx context.Context, who auth.Identity, id string, l api.Lifecycle) (api.Lifecycle, error) {
	if err := s.checkLifecycle(l); err != nil {
		return api.Lifecycle{}, err
	}
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	defer release()
	if !alive(row.Status) {
		return api.Lifecycle{}, notAlive(&row)
	}
	if l == (api.Lifecycle{}) {
		return lifecycle(&row), nil
	}
	s.setLife(&row, l)
	if l.Idle != nil || l.IdleSeconds != nil {
		if row.Idle, err = idlePolicy(row.Idle, l.Idle, l.IdleSeconds, "idle_seconds"); err != nil {
			return api.Lifecycle{}, err
		}
	}
	if l.Checkpoints != nil {
		row.Checkpoints = *l.Checkpoints
	}
	if err := s.save(ctx, &row); err != nil {
		return api.Lifecycle{}, err
	}
	s.reaper.mind(row.ExpiresAt)
	if l.Checkpoints != nil {
		err = s.applyCheckpoints(ctx, &row)
	}
	return lifecycle(&row), err
}

func (s *Service) checkLifecycle(l api.Lifecycle) error {
	if err := s.checkTTL(l.TTLSeconds); err != nil {
		return err
	}
	if l.ExpiresAt != nil {
		return invalid("expires_at", "expires_at cannot be set; set ttl_seconds")
	}
	if l.Persistent != nil && *l.Persistent && l.TTLSeconds != nil {
		return invalid("ttl_seconds", "a persistent sandbox has no ttl_seconds; give one of the two")
	}
	return checkCheckpoints(l.Checkpoints)
}

// setLife changes the lifetime in a row.
func (s *Service) setLife(row *store.Sandbox, l api.Lifecycle) {
	switch {
	case l.Persistent != nil && *l.Persistent:
		row.Persistent, row.TTLSeconds, row.ExpiresAt = true, 0, time.Time{}
	case l.TTLSeconds != nil:
		s.setTTL(row, *l.TTLSeconds)
	case l.Persistent != nil && row.Persistent:
		s.setTTL(row, s.limits.DefaultTTL)
	}
}

// applyCheckpoints makes a new policy hold for the checkpoints that are there.
func (s *Service) applyCheckpoints(ctx context.Context, row *store.Sandbox) error {
	age := time.Duration(row.Checkpoints.MaxAgeSeconds) * time.Second
	if err := s.store.SetCheckpointAge(ctx, row.ID, age); err != nil {
		return err
	}
	s.thin(ctx, row)
	if age > 0 {
		s.reaper.mind(now())
	}
	return nil
}

func (s *Service) setTTL(row *store.Sandbox, seconds int) {
	row.Persistent, row.TTLSeconds = false, seconds
	row.ExpiresAt = now().Add(time.Duration(seconds) * time.Second)
}

func lifecycle(row *store.Sandbox) api.Lifecycle {
	l := api.Lifecycle{Persistent: &row.Persistent, Idle: row.Idle}
	if row.Idle != nil {
		l.IdleSeconds = &row.Idle.TimeoutSeconds
	}
	if row.Checkpoints != (api.CheckpointPolicy{}) {
		l.Checkpoints = &row.Checkpoints
	}
	if !row.Persistent {
		l.TTLSeconds = &row.TTLSeconds
	}
	if !row.ExpiresAt.IsZero() {
		l.ExpiresAt = &row.ExpiresAt
	}
	return l
}
