package client

import (
	"context"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Sandbox is a handle on one sandbox. The embedded record is as the server
// last gave it (Create, Get, List, Refresh, Fork, Pause, Resume, Hibernate,
// Wake, Restore, Promote); all methods go by the ID alone and may be called
// concurrently, except those that replace the record. Its Files are those of the
// sandbox's default user.
type Sandbox struct {
	api.Sandbox
	Files
}

func (s *Sandbox) path(more ...string) []string {
	return append([]string{"v1", "sandboxes", s.ID}, more...)
}

// Refresh reads the record again.
func (s *Sandbox) Refresh(ctx context.Context) error {
	return s.record(ctx, request{method: http.MethodGet, path: s.path()})
}

// Delete ends the sandbox and all in it.
func (s *Sandbox) Delete(ctx context.Context) error {
	return s.c.Sandboxes.Delete(ctx, s.ID)
}

// Pause stops every process where it stands; memory stays on the host.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.record(ctx, request{method: http.MethodPost, path: s.path("pause")})
}

// Resume lets a paused sandbox go on.
func (s *Sandbox) Resume(ctx context.Context) error {
	return s.record(ctx, request{method: http.MethodPost, path: s.path("resume")})
}

// Hibernate puts the sandbox to disk with all its state and frees its memory.
// The next request that needs it wakes it.
func (s *Sandbox) Hibernate(ctx context.Context) error {
	return s.record(ctx, request{method: http.MethodPost, path: s.path("hibernate")})
}

// Wake brings a hibernated sandbox back ahead of the request that would.
func (s *Sandbox) Wake(ctx context.Context) error {
	return s.record(ctx, request{method: http.MethodPost, path: s.path("wake")})
}

// record makes a call that answers the sandbox's record.
func (s *Sandbox) record(ctx context.Context, r request) error {
	var rec api.Sandbox
	if err := s.c.call(ctx, r, &rec); err != nil {
		return err
	}
	if rec.ID != "" {
		s.Sandbox = rec
	}
	return nil
}

// Lifecycle says how long the sandbox lives, when it goes to sleep by itself and
// which of its checkpoints are kept.
func (s *Sandbox) Lifecycle(ctx context.Context) (api.Lifecycle, error) {
	var out api.Lifecycle
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("lifecycle")}, &out)
	return out, err
}

// SetLifecycle changes what is set of in; nil fields stay as they are.
func (s *Sandbox) SetLifecycle(ctx context.Context, in api.Lifecycle) (api.Lifecycle, error) {
	var out api.Lifecycle
	err := s.c.call(ctx, request{method: http.MethodPatch, path: s.path("lifecycle"), in: in}, &out)
	return out, err
}

// SetTTL lets the sandbox live for ttl from now on, rounded up to seconds.
func (s *Sandbox) SetTTL(ctx context.Context, ttl time.Duration) (api.Lifecycle, error) {
	seconds := wholeSeconds(ttl)
	return s.SetLifecycle(ctx, api.Lifecycle{TTLSeconds: &seconds})
}

// SetPersistent removes the sandbox's time to live, or with false lets the
// server's default run from now on.
func (s *Sandbox) SetPersistent(ctx context.Context, persistent bool) (api.Lifecycle, error) {
	return s.SetLifecycle(ctx, api.Lifecycle{Persistent: &persistent})
}

// SetIdle lets the sandbox go to sleep after this long without use, rounded up
// to seconds; 0 is never. What counts as use stays as it was: SetLifecycle
// changes that too.
func (s *Sandbox) SetIdle(ctx context.Context, timeout time.Duration) (api.Lifecycle, error) {
	seconds := wholeSeconds(timeout)
	return s.SetLifecycle(ctx, api.Lifecycle{IdleSeconds: &seconds})
}

func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Metrics says what the sandbox uses now.
func (s *Sandbox) Metrics(ctx context.Context) (api.Metrics, error) {
	var out api.Metrics
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("metrics")}, &out)
	return out, err
}
