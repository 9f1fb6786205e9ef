// Package control holds the rules of the platform: who may make which sandbox,
// how long it lives, and what is true after something failed. It keeps its rows
// in the store and asks a host.Host for everything that touches a machine.
//
// # Rules
//
// The host owns the truth about its sandboxes; the row says what is wanted. A
// row is written before the host is asked to create and removed after the host
// has deleted, so that a crash at any point leaves a row to start cleaning from;
// the same holds for snapshots. Everything that changes one sandbox takes turns
// (locks). A change that has begun is finished or undone even when its client
// leaves.
package control

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

// Deps is what a Service is made of.
type Deps struct {
	Store  *store.Store
	Host   host.Host
	Log    *slog.Logger
	Limits Limits
	// Woken hears of every wake; may be nil.
	Woken func(api.Sandbox)
}

// Limits bounds what callers may ask for. Zero fields take the defaults.
type Limits struct {
	SandboxesPerOrg int // that have not failed; default 1000
	DefaultTTL      int // seconds; default 3600
	MaxTTL          int // seconds; default 30 days
	NetworksPerOrg  int // default 1000
}

func (l Limits) withDefaults() Limits {
	if l.SandboxesPerOrg == 0 {
		l.SandboxesPerOrg = 1000
	}
	if l.NetworksPerOrg == 0 {
		l.NetworksPerOrg = 1000
	}
	if l.MaxTTL == 0 {
		l.MaxTTL = 30 * 24 * 3600
	}
	if l.DefaultTTL == 0 {
		l.DefaultTTL = min(3600, l.MaxTTL)
	}
	return l
}

const (
	reconcileEvery = 30 * time.Second
	pruneEvery     = 10 * time.Minute
	keepFailed     = time.Hour           // a failed sandbox's row
	keepEvents     = 24 * time.Hour      // events of a sandbox that is gone
	keepAllEvents  = 30 * 24 * time.Hour // events of any sandbox
	keepLineage    = 24 * time.Hour      // of a sandbox that is gone, when nothing descends from it
	finishWithin   = time.Minute         // of a change whose client has left
)

// Service is the control plane. Its methods may be called concurrently, also
// while Run does not run: what happens by itself then waits for Run.
type Service struct {
	store  *store.Store
	host   host.Host
	log    *slog.Logger
	limits Limits
	woken  func(api.Sandbox)

	records   records
	locks     locks
	creations creations
	pins      pins
	wakes     wakes
	uses      uses
	idler     idler
	events    eventLog
	reaper    reaper
	denials   denials
	series    series
	ports     portWatches
	certified certified
	hostID    atomic.Pointer[string]

	background sync.WaitGroup // what goes on although its request has ended
}

// New gives a service. Nothing happens until Run or a method is called.
func New(d Deps) *Service {
	return &Service{
		store:  d.Store,
		host:   d.Host,
		log:    d.Log,
		limits: d.Limits.withDefaults(),
		woken:  d.Woken,
		events: eventLog{store: d.Store, log: d.Log, kick: make(chan struct{}, 1)},
		reaper: reaper{kick: make(chan struct{}, 1)},
		idler:  idler{kick: make(chan struct{}, 1)},
		uses:   uses{seed: maphash.MakeSeed()},
	}
}

// Run brings rows and host together at the start and from then on, ends
// sandboxes whose lifetime is over, puts idle ones to sleep, measures the use of
// all, and writes events. It returns when ctx has
// ended and everything it began is done. Callers end it after the last request,
// so that the events of that are written too.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { s.runEvents(ctx); return nil })
	g.Go(func() error { s.runReconcile(ctx); return nil })
	g.Go(func() error { s.runReaper(ctx); return nil })
	g.Go(func() error { s.runChanges(ctx); return nil })
	g.Go(func() error { s.runIdle(ctx); return nil })
	g.Go(func() error { s.runSeries(ctx); return nil })
	err := g.Wait()
	s.background.Wait()
	s.records.close()
	last, cancel := finish(ctx)
	defer cancel()
	if flushErr := s.events.flush(last); flushErr != nil {
		s.log.Error("the last events were not written", "error", flushErr)
	}
	return err
}

// finish gives a context for work that must be done although ctx has ended.
func finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
}

// hostName is the id of the host, asked for once.
func (s *Service) hostName(ctx context.Context) (string, error) {
	if id := s.hostID.Load(); id != nil {
		return *id, nil
	}
	info, err := s.host.Info(ctx)
	if err != nil {
		return "", err
	}
	s.hostID.Store(&info.ID)
	return info.ID, nil
}

// now is the time as rows keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func notFound(id string) error {
	if !api.ValidID(id) {
		return api.Errorf(api.CodeSandboxNotFound, "there is no sandbox %.40q", id)
	}
	return api.Errorf(api.CodeSandboxNotFound, "there is no sandbox %s", id).With("sandbox_id", id)
}

func invalid(field, format string, args ...any) error {
	return api.Errorf(api.CodeInvalidRequest, format, args...).With("field", field)
}
