package control

import (
	"context"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// Lifecycle says how long a sandbox lives.
func (s *Service) Lifecycle(ctx context.Context, who auth.Identity, id string) (api.Lifecycle, error) {
	row, err := s.row(ctx, who, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	return lifecycle(&row), nil
}

// SetLifecycle changes how long a sandbox lives, counted from now. Absent fields
// stay, but a ttl_seconds alone ends persistence, and persistence that ends
// without a ttl_seconds gives the default one.
func (s *Service) SetLifecycle(ctx context.Context, who auth.Identity, id string, l api.Lifecycle) (api.Lifecycle, error) {
	if err := s.checkTTL(l.TTLSeconds); err != nil {
		return api.Lifecycle{}, err
	}
	if l.ExpiresAt != nil {
		return api.Lifecycle{}, invalid("expires_at", "expires_at cannot be set; set ttl_seconds")
	}
	forever := l.Persistent != nil && *l.Persistent
	if forever && l.TTLSeconds != nil {
		return api.Lifecycle{}, invalid("ttl_seconds", "a persistent sandbox has no ttl_seconds; give one of the two")
	}
	release, row, err := s.lockRow(ctx, who, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	defer release()
	if row.Status != api.StatusRunning && row.Status != api.StatusPaused {
		return api.Lifecycle{}, inState(id, &record{status: row.Status, failure: row.Error}, "running or paused")
	}
	switch {
	case forever:
		row.Persistent, row.TTLSeconds, row.ExpiresAt = true, 0, time.Time{}
	case l.TTLSeconds != nil:
		s.setTTL(&row, *l.TTLSeconds)
	case l.Persistent != nil && row.Persistent:
		s.setTTL(&row, s.limits.DefaultTTL)
	default:
		return lifecycle(&row), nil
	}
	if err := s.save(ctx, &row); err != nil {
		return api.Lifecycle{}, err
	}
	s.reaper.mind(row.ExpiresAt)
	return lifecycle(&row), nil
}

func (s *Service) setTTL(row *store.Sandbox, seconds int) {
	row.Persistent, row.TTLSeconds = false, seconds
	row.ExpiresAt = now().Add(time.Duration(seconds) * time.Second)
}

func lifecycle(row *store.Sandbox) api.Lifecycle {
	l := api.Lifecycle{Persistent: &row.Persistent}
	if !row.Persistent {
		l.TTLSeconds = &row.TTLSeconds
	}
	if !row.ExpiresAt.IsZero() {
		l.ExpiresAt = &row.ExpiresAt
	}
	return l
}
