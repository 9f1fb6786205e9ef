package control

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

const (
	reapBatch    = 100
	reapTogether = 8
	reapRetry    = 5 * time.Second
	// reapLook bounds one wait, so that a clock that was set is noticed.
	reapLook = time.Minute
)

// reaper knows when the next lifetime ends, so that a create asks the store only
// when its sandbox is the next to go.
type reaper struct {
	next atomic.Int64 // microseconds; what ends earlier must be minded
	kick chan struct{}
}

// mind makes the reaper look again if at is earlier than what it waits for.
func (r *reaper) mind(at time.Time) {
	if at.IsZero() || at.UnixMicro() >= r.next.Load() {
		return
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// runReaper ends sandboxes at the end of their lifetime until ctx ends.
func (s *Service) runReaper(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := s.reap(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("ending sandboxes whose lifetime is over failed", "error", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.reaper.kick:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// reap ends what is over now and gives how long to wait for the next.
func (s *Service) reap(ctx context.Context) (time.Duration, error) {
	// Until next is known, whatever is made meanwhile wakes the reaper.
	s.reaper.next.Store(math.MaxInt64)
	rows, err := s.store.ExpiredSandboxes(ctx, time.Now(), reapBatch)
	if err != nil {
		return reapRetry, err
	}
	old, err := s.store.ExpiredCheckpoints(ctx, time.Now(), reapBatch)
	if err != nil {
		return reapRetry, err
	}
	var g errgroup.Group
	g.SetLimit(reapTogether)
	for _, row := range rows {
		g.Go(func() error { return s.expire(ctx, row.ID) })
	}
	for _, n := range old {
		g.Go(func() error { return s.expireCheckpoint(ctx, &n) })
	}
	if err := g.Wait(); err != nil {
		return reapRetry, err
	}
	if len(rows) == reapBatch || len(old) == reapBatch {
		return 0, nil
	}
	next, err := s.nextExpiry(ctx)
	if err != nil {
		return reapRetry, err
	}
	if next.IsZero() {
		return reapLook, nil
	}
	s.reaper.next.Store(next.UnixMicro())
	return min(max(time.Until(next), 0), reapLook), nil
}

// nextExpiry is when the next sandbox or checkpoint ends; zero when none does.
func (s *Service) nextExpiry(ctx context.Context) (time.Time, error) {
	next, err := s.store.NextExpiry(ctx)
	if err != nil {
		return next, err
	}
	checkpoint, err := s.store.NextCheckpointExpiry(ctx)
	if next.IsZero() || !checkpoint.IsZero() && checkpoint.Before(next) {
		next = checkpoint
	}
	return next, err
}

// expireCheckpoint removes a checkpoint that its sandbox's policy keeps no
// longer, unless the sandbox was rolled back to it meanwhile. One in use is
// tried again soon.
func (s *Service) expireCheckpoint(ctx context.Context, n *store.Snapshot) error {
	release, err := s.locks.take(ctx, n.SandboxID)
	if err != nil {
		return err
	}
	defer release()
	row, err := s.current(ctx, n.SandboxID)
	if err != nil || row != nil && row.SnapshotID == n.ID {
		return err
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	if err := s.dropSnapshot(ctx, n.ID); api.CodeOf(err) != api.CodeSnapshotNotFound {
		return err
	}
	return nil
}

// expire ends one sandbox if its lifetime is still over when its turn comes. For
// a failed one that was the time in which its row could be looked at.
func (s *Service) expire(ctx context.Context, id string) error {
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	row, err := s.current(ctx, id)
	if err != nil || row == nil || row.ExpiresAt.IsZero() || row.ExpiresAt.After(time.Now()) {
		return err
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	event := EventExpired
	if row.Status == api.StatusFailed {
		event = EventDeleted
	}
	return s.remove(ctx, row, event)
}
