package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/store"
)

// The types of events.
const (
	EventRunning = "sandbox.running"
	EventPaused  = "sandbox.paused"
	EventResumed = "sandbox.resumed"
	EventDeleted = "sandbox.deleted"
	EventExpired = "sandbox.expired" // deleted because its lifetime was over
	EventDied    = "sandbox.died"    // stopped without being asked to
	EventFailed  = "sandbox.failed"  // could not be created

	EventHibernated = "sandbox.hibernated" // reason: request, idle, or host when a wake was cut off
	EventWoken      = "sandbox.woken"
	EventRestored   = "sandbox.restored" // rolled back to a checkpoint
	EventNetwork    = "sandbox.network"  // what it may reach was changed
	EventDenied     = "network.denied"   // it tried to reach what it may not
	EventForked     = "sandbox.forked"   // has children that run
	EventPortOpened = "port.opened"      // something listens on a port; told while somebody follows
	EventPortClosed = "port.closed"
	// Of a fork with several children, on the parent, and of a child that was
	// chosen.
	EventTreeCompleted = "fork_tree.completed"
	EventTreePromoted  = "fork_tree.promoted"
)

// EventQuery selects events of a sandbox: those with ids above Since, and of
// them the last Tail, or all up to 1000 when Tail is 0.
type EventQuery struct {
	Since int64
	Tail  int
}

// maxPending bounds the events that wait for a store that does not answer.
const maxPending = 10000

// eventLog writes events behind the requests that cause them.
type eventLog struct {
	store *store.Store
	log   *slog.Logger
	kick  chan struct{}

	turn      sync.Mutex // one batch is written at a time, in order
	mu        sync.Mutex
	pending   []store.Event
	followers map[string]map[chan struct{}]bool // by sandbox
}

// emit notes an event; it is written soon.
func (s *Service) emit(row *store.Sandbox, kind string, data map[string]string) {
	s.events.add(store.Event{Org: row.Org, SandboxID: row.ID, Type: kind, At: now(), Data: data})
}

func errorData(err error) map[string]string {
	e := api.AsError(err)
	return map[string]string{"code": string(e.Code), "message": e.Message}
}

func (l *eventLog) add(e store.Event) {
	l.mu.Lock()
	if len(l.pending) < maxPending {
		l.pending = append(l.pending, e)
	} else {
		l.log.Warn("an event was dropped because the database does not take any", "sandbox_id", e.SandboxID, "type", e.Type)
	}
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// flush writes what was noted before it was called.
func (l *eventLog) flush(ctx context.Context) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	l.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := l.store.AddEvents(ctx, batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.pending = append(batch, l.pending...)
		return err
	}
	for _, e := range batch {
		for f := range l.followers[e.SandboxID] {
			select {
			case f <- struct{}{}:
			default: // it has yet to look anyway
			}
		}
	}
	return nil
}

// follow gives a channel that gets a token after events of a sandbox were
// written.
func (l *eventLog) follow(id string) (news <-chan struct{}, end func()) {
	f := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followers == nil {
		l.followers = make(map[string]map[chan struct{}]bool)
	}
	if l.followers[id] == nil {
		l.followers[id] = make(map[chan struct{}]bool)
	}
	l.followers[id][f] = true
	return f, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.followers[id], f)
		if len(l.followers[id]) == 0 {
			delete(l.followers, id)
		}
	}
}

// runEvents writes events as they come until ctx ends.
func (s *Service) runEvents(ctx context.Context) {
	for {
		select {
		case <-s.events.kick:
		case <-ctx.Done():
			return
		}
		err := s.events.flush(ctx)
		for err != nil && ctx.Err() == nil {
			s.log.Warn("events wait for the database", "error", err)
			if !sleep(ctx, 2*time.Second) {
				return
			}
			err = s.events.flush(ctx)
		}
	}
}

// sleep waits and reports whether ctx still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Events gives what happened to a sandbox, oldest first. They can be read for
// 24 hours after the sandbox is gone.
func (s *Service) Events(ctx context.Context, who auth.Identity, id string, q EventQuery) ([]api.Event, error) {
	if q.Tail < 0 || q.Since < 0 {
		return nil, invalid("tail", "since and tail may not be negative")
	}
	if _, err := s.history(ctx, who, id); err != nil {
		return nil, err
	}
	return s.readEvents(ctx, who, id, q)
}

// history authorises a look at a sandbox's past and reports whether it is over.
func (s *Service) history(ctx context.Context, who auth.Identity, id string) (gone bool, err error) {
	_, err = s.find(ctx, who, id)
	if err == nil {
		return false, nil
	}
	if api.CodeOf(err) != api.CodeSandboxNotFound || !api.ValidID(id) {
		return false, err
	}
	if flushErr := s.events.flush(ctx); flushErr != nil {
		return false, flushErr
	}
	last, eventsErr := s.store.Events(ctx, who.Org, id, 0, 1)
	if eventsErr != nil {
		return false, eventsErr
	}
	if len(last) == 0 {
		return false, err
	}
	return true, nil
}

func (s *Service) readEvents(ctx context.Context, who auth.Identity, id string, q EventQuery) ([]api.Event, error) {
	if err := s.events.flush(ctx); err != nil {
		return nil, err
	}
	rows, err := s.store.Events(ctx, who.Org, id, q.Since, q.Tail)
	out := make([]api.Event, len(rows))
	for i, e := range rows {
		out[i] = api.Event{ID: e.ID, SandboxID: e.SandboxID, Type: e.Type, Time: e.At, Data: e.Data}
	}
	return out, err
}

// FollowEvents emits the events with ids above since and then new ones as they
// happen. It returns nil after the last event of a sandbox that is gone, and
// the error of emit or ctx otherwise.
func (s *Service) FollowEvents(ctx context.Context, who auth.Identity, id string, since int64, emit func(api.Event) error) error {
	news, end := s.events.follow(id)
	defer end()
	gone, err := s.history(ctx, who, id)
	if err != nil {
		return err
	}
	if !gone {
		defer s.watchPorts(ctx, id)()
	}
	for {
		events, err := s.readEvents(ctx, who, id, EventQuery{Since: since})
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := emit(e); err != nil {
				return err
			}
			since = e.ID
			gone = gone || e.Type == EventDeleted || e.Type == EventExpired || e.Type == EventFailed
		}
		if len(events) > 0 {
			continue // there may be more than one answer holds
		}
		if gone {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return left(ctx)
		}
	}
}
