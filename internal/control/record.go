package control

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// record is what a request to a sandbox needs to know of it. Records are
// replaced, never changed.
type record struct {
	org     string
	status  api.Status
	failure *api.Error
	client  *guest.Client // of a running sandbox; kept while it is held
	era     uint64        // of a running sandbox: as long as it is the same machine
	exposed *exposure
}

// lastEra is the era that began last, of whichever sandbox.
var lastEra atomic.Uint64

// records remembers every sandbox that was looked at, so that a request to a
// running one costs no query. Every change of a row passes through set or drop.
type records struct {
	mu      sync.RWMutex
	changes uint64 // grows with every set and drop
	byID    map[string]*record
}

func (r *records) get(id string) (rec *record, changes uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byID[id], r.changes
}

// set remembers a row as it is now.
func (r *records) set(row *store.Sandbox, dial guest.Dialer) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	return r.put(row, dial)
}

// setUnless remembers a row that was read when the number of changes was
// changes, unless there was one since: the row may be older than it.
func (r *records) setUnless(changes uint64, row *store.Sandbox, dial guest.Dialer) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != changes {
		return nil
	}
	return r.put(row, dial)
}

func (r *records) put(row *store.Sandbox, dial guest.Dialer) *record {
	old := r.byID[row.ID]
	rec := &record{org: row.Org, status: row.Status, failure: row.Error, exposed: new(exposure)}
	if old != nil {
		rec.exposed = old.exposed
	}
	if row.Status == api.StatusRunning {
		if old != nil && old.client != nil {
			rec.client, rec.era = old.client, old.era
		} else {
			rec.client, rec.era = guest.NewClient(dial, row.Token), lastEra.Add(1)
		}
	} else if old != nil && old.client != nil {
		old.client.Close()
	}
	if r.byID == nil {
		r.byID = make(map[string]*record)
	}
	r.byID[row.ID] = rec
	return rec
}

// hold makes requests to a sandbox wait for its turn, as they do for one that is
// asleep, until it is set again. Those under way go on: should what its turn was
// taken for fail, it is as before.
func (r *records) hold(row *store.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	held := &record{org: row.Org, status: api.StatusHibernated, exposed: new(exposure)}
	if old := r.byID[row.ID]; old != nil {
		held.client, held.era, held.exposed = old.client, old.era, old.exposed
	}
	if r.byID == nil {
		r.byID = make(map[string]*record)
	}
	r.byID[row.ID] = held
}

// drop forgets a sandbox.
func (r *records) drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	if rec := r.byID[id]; rec != nil && rec.client != nil {
		rec.client.Close()
	}
	delete(r.byID, id)
}

// close forgets everything.
func (r *records) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	for _, rec := range r.byID {
		if rec.client != nil {
			rec.client.Close()
		}
	}
	clear(r.byID)
}

// find gives the record of a sandbox that the caller may use. A sandbox of
// another org is not found.
func (s *Service) find(ctx context.Context, who auth.Identity, id string) (*record, error) {
	rec, err := s.findAny(ctx, id)
	if err == nil && rec.org != who.Org {
		return nil, notFound(id)
	}
	return rec, err
}

// findAny gives the record of a sandbox of any org.
func (s *Service) findAny(ctx context.Context, id string) (*record, error) {
	if !api.ValidID(id) {
		return nil, notFound(id)
	}
	for range 3 {
		rec, changes := s.records.get(id)
		if rec == nil {
			row, err := s.store.GetSandbox(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				return nil, notFound(id)
			}
			if err != nil {
				return nil, err
			}
			rec = s.records.setUnless(changes, &row, s.dialer(id))
		}
		if rec != nil {
			return rec, nil
		}
	}
	// Other sandboxes change faster than rows are read: what was read now is
	// true enough for one request, but is not remembered.
	return s.findOnce(ctx, id)
}

// findOnce gives a record that nobody else has.
func (s *Service) findOnce(ctx context.Context, id string) (*record, error) {
	row, err := s.store.GetSandbox(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	var own records
	return own.put(&row, s.dialer(id)), nil
}

// row reads the row of a sandbox that the caller may use.
func (s *Service) row(ctx context.Context, who auth.Identity, id string) (store.Sandbox, error) {
	if !api.ValidID(id) {
		return store.Sandbox{}, notFound(id)
	}
	row, err := s.store.GetSandbox(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.Org != who.Org {
		return store.Sandbox{}, notFound(id)
	}
	return row, err
}

// save writes a changed row. When the store fails it is not known whether the
// change was made, so the record is forgotten.
func (s *Service) save(ctx context.Context, row *store.Sandbox) error {
	row.UpdatedAt = now()
	if err := s.store.UpdateSandbox(ctx, row); err != nil {
		s.records.drop(row.ID)
		if errors.Is(err, store.ErrNotFound) {
			return notFound(row.ID)
		}
		return err
	}
	s.remember(row)
	return nil
}

// remember takes in how a row is now.
func (s *Service) remember(row *store.Sandbox) {
	s.records.set(row, s.dialer(row.ID))
	s.idler.note(row, &s.uses)
}

func (s *Service) dialer(id string) guest.Dialer {
	return func(ctx context.Context, port int) (net.Conn, error) { return s.host.Dial(ctx, id, port) }
}

// inState is the error for a sandbox that is not in the state an action needs.
func inState(id string, rec *record, need string) error {
	if rec.status == api.StatusFailed {
		if rec.failure != nil {
			return rec.failure
		}
		return api.Errorf(api.CodeSandboxDied, "sandbox %s has died", id)
	}
	return api.Errorf(api.CodeSandboxState, "sandbox %s is %s, and this needs it %s", id, rec.status, need).With("status", string(rec.status))
}
