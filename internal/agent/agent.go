// Package agent runs sandboxes on this machine: it implements host.Host out of
// isolation drivers, network slots, images and the guest protocol.
//
// The agent owns the truth about its sandboxes, in memory while it lives and in
// its journal across its death. A create is a list of named steps, each with
// its undo (create.go); a delete, a death and a bake free the same things by
// the same means. Whatever a crash leaves is either adopted whole or swept at
// the next start (attach.go), before any call is served.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// Config is what an agent is made of. Zero values have defaults where noted.
type Config struct {
	Dir       string // state directory: journal and scratch space
	Snapshots string // directory of baked snapshots; default Dir/snapshots
	Name      string // of the host; default its hostname

	Drivers []driver.Driver
	Default string // driver of creates that name none; default the first usable one
	Network Network
	Images  Images
	Kept    snapshot.Keeper // of snapshots and of sleeping sandboxes; nil: there are none

	// Templates are built and baked as soon as the agent runs; the host is
	// ready when all of them are. Other templates are the tags of Images.
	Templates []Template
	Shells    int // runtime shells kept ready for each of Templates

	BootTimeout time.Duration // of a restored machine and its guest; default 30 s
	ColdTimeout time.Duration // of a cold one; default 60 s

	Log     *slog.Logger      // default: nothing is logged
	Observe func(Observation) // hears of everything that finished; may be nil
	Fault   Fault             // tests only
}

// Observation is one finished operation, for metrics.
type Observation struct {
	Op       string // create, fork, snapshot, hibernate, wake, rollback, delete, bake or build
	Driver   string
	Template string
	Boot     api.BootMode // of a create, wake or rollback
	Took     time.Duration
	Steps    []api.Step // of all but a delete and a build
	Err      error
}

// Agent is the host.Host of this machine. Calls wait until Run has found the
// sandboxes that an earlier agent left.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	journal   journal
	drivers   *drivers
	catalogue *catalogue
	changes   *changes
	flights   *flights
	staging   staging
	starts    chan struct{} // one for each machine that may start at a time

	started  chan struct{} // closed when startErr is set
	startErr error
	stopped  chan struct{} // closed when Run returns
	id       string        // of the host; set before started is closed

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

var _ host.Host = (*Agent)(nil)

// New makes an agent. It does no work: Run does.
func New(cfg Config) *Agent {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Snapshots == "" {
		cfg.Snapshots = filepath.Join(cfg.Dir, "snapshots")
	}
	if cfg.BootTimeout <= 0 {
		cfg.BootTimeout = 30 * time.Second
	}
	if cfg.ColdTimeout <= 0 {
		cfg.ColdTimeout = time.Minute
	}
	a := &Agent{
		cfg:       cfg,
		log:       cfg.Log,
		journal:   journal{root: filepath.Join(cfg.Dir, "sandboxes")},
		drivers:   newDrivers(cfg.Drivers, cfg.Default),
		changes:   newChanges(cfg.Log),
		flights:   newFlights(),
		starts:    make(chan struct{}, 2+2*runtime.NumCPU()),
		started:   make(chan struct{}),
		stopped:   make(chan struct{}),
		sandboxes: map[string]*sandbox{},
	}
	a.catalogue = newCatalogue(a)
	return a
}

// Run adopts what an earlier agent left, then serves until ctx ends. Sandboxes
// go on without it. It may be called once.
func (a *Agent) Run(ctx context.Context) error {
	defer close(a.stopped)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.flights.open(ctx)
	if a.startErr = a.start(ctx); a.startErr != nil {
		close(a.started)
		a.flights.close()
		return a.startErr
	}
	close(a.started)
	a.flights.run(a.catalogue.run)
	a.flights.run(a.keep)
	err := a.cfg.Network.Run(ctx)
	cancel()
	a.flights.close()
	return errors.Join(ignoreCanceled(err), a.close(ctx))
}

// Started is closed when calls are served, or when Run has failed to start.
func (a *Agent) Started() <-chan struct{} { return a.started }

// start prepares directories, networks and drivers and finds the sandboxes of
// an earlier agent.
func (a *Agent) start(ctx context.Context) error {
	for _, dir := range []string{a.cfg.Dir, a.journal.root, a.cfg.Snapshots, a.scratch(), a.forks()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the agent's directory: %w", err)
		}
	}
	var err error
	if a.id, err = hostID(a.cfg.Dir); err != nil {
		return err
	}
	a.cfg.Network.OnDenied(func(id string, c api.Connection) {
		a.changes.emit(host.Change{SandboxID: id, Denied: &c})
	})
	if err := a.cfg.Network.Setup(ctx); err != nil {
		return err
	}
	a.drivers.probe(ctx)
	return a.takeOver(ctx)
}

// close ends what only a living agent needs: shells and free network slots.
func (a *Agent) close(ctx context.Context) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	return errors.Join(a.drivers.close(ctx), a.cfg.Network.Close(ctx))
}

// await returns when calls may be served.
func (a *Agent) await(ctx context.Context) error {
	select {
	case <-a.started:
	case <-ctx.Done():
		return contextError(ctx)
	}
	if a.startErr != nil {
		return api.Wrap(api.CodeHostSetup, a.startErr, "the host's agent did not start: %s", api.AsError(a.startErr).Message)
	}
	select {
	case <-a.stopped:
		return errStopping()
	default:
		return nil
	}
}

func (a *Agent) lookup(id string) *sandbox {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sandboxes[id]
}

func (a *Agent) all() []*sandbox {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*sandbox, 0, len(a.sandboxes))
	for _, s := range a.sandboxes {
		out = append(out, s)
	}
	return out
}

// add enters a sandbox into the table; false if its id is taken.
func (a *Agent) add(s *sandbox) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sandboxes[s.id] != nil {
		return false
	}
	a.sandboxes[s.id] = s
	return true
}

func (a *Agent) drop(s *sandbox) {
	a.cfg.Network.Forget(s.id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sandboxes[s.id] == s {
		delete(a.sandboxes, s.id)
	}
}

func (a *Agent) observe(o Observation) {
	if a.cfg.Observe != nil {
		a.cfg.Observe(o)
	}
}

func sortSandboxes(list []host.Sandbox) {
	slices.SortFunc(list, func(x, y host.Sandbox) int {
		if c := x.CreatedAt.Compare(y.CreatedAt); c != 0 {
			return c
		}
		if x.ID < y.ID {
			return -1
		}
		return 1
	})
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
