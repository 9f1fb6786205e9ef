package control

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// wakeTries bounds how often one request wakes a sandbox that others put to
// sleep again before it was served.
const wakeTries = 3

// restAfter is how long after a wake that failed visitors get its failure again:
// they are anybody, and a wake costs the host a read of the whole memory.
const restAfter = 3 * time.Second

// wakes are the wakes under way: all who want a sandbox awake wait for one.
type wakes struct {
	mu     sync.Mutex
	byID   map[string]*wake
	failed map[string]failedWake // of the last restAfter, and some before
}

// failedWake is why a sandbox could not be woken. It is true of the record of
// that time alone: any change may have mended it.
type failedWake struct {
	err   error
	rec   *record
	until time.Time
}

// keep remembers why a sandbox could not be woken; its caller has its turn.
func (w *wakes) keep(id string, rec *record, err error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.failed, func(_ string, f failedWake) bool { return now.After(f.until) })
	if w.failed == nil {
		w.failed = make(map[string]failedWake)
	}
	w.failed[id] = failedWake{err: err, rec: rec, until: now.Add(restAfter)}
}

// kept gives why a sandbox could not be woken just now, if that still is so.
func (w *wakes) kept(id string, rec *record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f, ok := w.failed[id]; ok && f.rec == rec && time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

type wake struct {
	done chan struct{}
	err  error // valid after done
}

// Wake brings a hibernated sandbox back. Waking a running one changes nothing.
func (s *Service) Wake(ctx context.Context, who auth.Identity, id string) (api.Sandbox, error) {
	if _, err := s.awake(ctx, who, id); err != nil {
		return api.Sandbox{}, err
	}
	return s.Get(ctx, who, id)
}

// awake gives the record of a running sandbox, for which a hibernated one is
// woken.
func (s *Service) awake(ctx context.Context, who auth.Identity, id string) (*record, error) {
	if _, err := s.find(ctx, who, id); err != nil {
		return nil, err
	}
	return s.awakeAny(ctx, id)
}

// awakeAny is awake for a sandbox of any org.
func (s *Service) awakeAny(ctx context.Context, id string) (*record, error) {
	for range wakeTries {
		rec, err := s.findAny(ctx, id)
		if err != nil {
			return nil, err
		}
		if rec.status == api.StatusRunning {
			return rec, nil
		}
		if rec.status != api.StatusHibernated {
			return nil, inState(id, rec, "running")
		}
		if err := s.wakeTogether(ctx, id); err != nil {
			return nil, err
		}
	}
	return nil, api.Errorf(api.CodeSandboxState, "sandbox %s was put to sleep as often as it was woken", id).With("status", string(api.StatusHibernated))
}

// awakeFor is awakeAny for a visitor of a preview, who does not have a wake that
// has just failed tried again.
func (s *Service) awakeFor(ctx context.Context, id string) (*record, error) {
	rec, err := s.findAny(ctx, id)
	if err != nil || rec.status == api.StatusRunning {
		return rec, err
	}
	if err := s.wakes.kept(id, rec); err != nil {
		return nil, err
	}
	return s.awakeAny(ctx, id)
}

// wakeTogether waits until a sandbox has been woken, by whomever. The wake does
// not end with the request that began it; each waits as long as its own context
// lets it.
func (s *Service) wakeTogether(ctx context.Context, id string) error {
	s.wakes.mu.Lock()
	w := s.wakes.byID[id]
	if w == nil {
		w = &wake{done: make(chan struct{})}
		if s.wakes.byID == nil {
			s.wakes.byID = make(map[string]*wake)
		}
		s.wakes.byID[id] = w
		s.background.Go(func() {
			ctx, cancel := within(ctx, changeWithin)
			defer cancel()
			w.err = s.wakeInTurn(ctx, id)
			s.wakes.mu.Lock()
			delete(s.wakes.byID, id)
			s.wakes.mu.Unlock()
			close(w.done)
		})
	}
	s.wakes.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return left(ctx)
	}
}

// wakeInTurn wakes a sandbox if it is still asleep when its turn comes.
func (s *Service) wakeInTurn(ctx context.Context, id string) error {
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	row, err := s.current(ctx, id)
	if err != nil {
		return err
	}
	if row == nil {
		return notFound(id)
	}
	if row.Status != api.StatusHibernated {
		s.remember(row) // the record said that it was
		return nil
	}
	return s.wake(ctx, row)
}

// wake brings a sandbox back whose turn the caller holds. Its lifetime went on
// while it slept and is not prolonged.
func (s *Service) wake(ctx context.Context, row *store.Sandbox) error {
	got, err := s.host.Wake(ctx, row.ID)
	if err != nil {
		s.log.Warn("a wake failed", "sandbox_id", row.ID, "org", row.Org, "error", err)
		if s.recheck(ctx, row); row.Status == api.StatusRunning {
			return nil // only the answer was lost
		}
		if rec, _ := s.records.get(row.ID); rec != nil {
			s.wakes.keep(row.ID, rec, err)
		}
		return err
	}
	adopt(row, got)
	row.Status = api.StatusRunning
	if err := s.save(ctx, row); err != nil {
		return err
	}
	s.emit(row, EventWoken, map[string]string{"boot_mode": string(row.Boot.Mode)})
	if s.woken != nil {
		s.woken(external(row))
	}
	return nil
}

// lockAwake is lockRow for what needs the sandbox in memory, running or paused.
func (s *Service) lockAwake(ctx context.Context, who auth.Identity, id string) (release func(), row store.Sandbox, err error) {
	release, row, err = s.lockRow(ctx, who, id)
	if err != nil {
		return nil, row, err
	}
	switch row.Status {
	case api.StatusRunning, api.StatusPaused:
	case api.StatusHibernated:
		c, cancel := within(ctx, changeWithin)
		defer cancel()
		err = s.wake(c, &row)
	default:
		err = notAlive(&row)
	}
	if err != nil {
		release()
		return nil, row, err
	}
	return release, row, nil
}
