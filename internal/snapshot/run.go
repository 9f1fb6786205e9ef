package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Pauses after a failure; each in a row doubles the next.
const (
	firstPause = time.Second
	mostPause  = 2 * time.Minute
)

// evictEvery is how often Run looks for what may be evicted: what was open last
// time may be closed.
const evictEvery = time.Minute

// Run packs, evicts and collects until ctx ends. It packs one snapshot at a time
// and works no more than half of the time, so that creates come first. While the
// blob store fails, snapshots stay raw; the failure is logged once.
func (s *Store) Run(ctx context.Context) error {
	if s.cfg.Blobs == nil {
		<-ctx.Done()
		return nil
	}
	r := runner{s: s, collectAt: time.Now().Add(s.cfg.Grace / 4)}
	for {
		wait := r.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-s.kept:
		}
	}
}

// runner is the state of Run.
type runner struct {
	s         *Store
	collectAt time.Time
	failing   bool
	pause     time.Duration
	resume    time.Time // after a failure
}

// once does what is due and gives how long there is nothing more to do.
func (r *runner) once(ctx context.Context) time.Duration {
	if wait := time.Until(r.resume); wait > 0 {
		return wait
	}
	next, err := r.packDue(ctx)
	if err == nil {
		err = r.s.evict(ctx)
	}
	if err == nil && !time.Now().Before(r.collectAt) {
		err = r.collect(ctx)
	}
	if ctx.Err() != nil {
		return 0
	}
	r.note(err)
	if wait := time.Until(r.resume); wait > 0 {
		return wait
	}
	return max(time.Millisecond, min(time.Until(r.collectAt), time.Until(next), evictEvery))
}

// collect collects. What is wrong with a snapshot rather than with the blob store
// must not hold up the rest.
func (r *runner) collect(ctx context.Context) error {
	_, err := r.s.Collect(ctx)
	if err != nil && (storeFails(err) || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		r.s.cfg.Log.Error("unused packs cannot be collected", "err", err)
	}
	r.collectAt = time.Now().Add(r.s.cfg.Grace / 4)
	return nil
}

// note logs the first failure in a row, and the end of them.
func (r *runner) note(err error) {
	if err == nil {
		if r.failing {
			r.s.cfg.Log.Info("snapshots are stored again")
		}
		r.failing, r.pause = false, 0
		return
	}
	if !r.failing {
		r.s.cfg.Log.Error("snapshots stay on this host for now; storing them is tried again", "err", err)
	}
	r.failing = true
	r.pause = min(max(firstPause, 2*r.pause), mostPause)
	r.resume = time.Now().Add(r.pause)
}

// packDue packs what is due, oldest first, and gives when the next will be. A
// failure that is of one snapshot alone does not hold up the others.
func (r *runner) packDue(ctx context.Context) (time.Time, error) {
	s := r.s
	for {
		id, due := s.nextDue()
		if id == "" || time.Until(due) > 0 {
			return due, nil
		}
		_, err := s.packAt(ctx, id, func(worked time.Duration) error { return rest(ctx, worked) })
		switch {
		case ctx.Err() != nil:
			return due, ctx.Err()
		case err == nil, api.CodeOf(err) == api.CodeSnapshotNotFound:
		case storeFails(err):
			return due, err
		default:
			s.cfg.Log.Error("a snapshot cannot be packed; it stays on this host", "snapshot", id, "err", err)
			s.postpone(id)
		}
		if err := s.evict(ctx); err != nil {
			return due, err
		}
	}
}

// storeFails reports whether an error is of the blob store as a whole.
func storeFails(err error) bool {
	code := api.CodeOf(err)
	return code == api.CodeSnapshotStore || code == api.CodeSnapshotStoreFull || errors.Is(err, context.DeadlineExceeded)
}

// nextDue gives the snapshot to pack next and when; none is far in the future.
func (s *Store) nextDue() (id string, due time.Time) {
	due = time.Now().Add(24 * time.Hour)
	if s.cfg.PackAfter < 0 {
		return "", due
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.snaps {
		if e.packed || !e.raw {
			continue
		}
		at := e.kept.Add(s.cfg.PackAfter)
		if at.Before(e.notBefore) {
			at = e.notBefore
		}
		if at.Before(due) {
			id, due = e.id, at
		}
	}
	return id, due
}

func (s *Store) postpone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.snaps[id]; e != nil {
		e.notBefore = time.Now().Add(mostPause)
	}
}

// rest sleeps for as long as was worked.
func rest(ctx context.Context, worked time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(worked):
		return nil
	}
}
