package hostnet

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
)

// errTaken says that another server has a slot of this index.
var errTaken = errors.New("slot is taken")

// Manager makes slots. Setup comes first, then Adopt and Sweep, then Run beside
// everything else, and Close after Run has returned.
type Manager struct {
	cfg    Config
	log    *slog.Logger
	kernel *kernel

	wanted chan struct{} // a ready slot was taken
	gone   chan struct{} // a slot was released
	mu     sync.Mutex
	ready  []Slot            // made ahead
	held   map[int]bool      // every index of ours: being made, ready, in use, being removed
	inUse  map[int]bool      // given out by Take or Adopt
	fresh  map[int]bool      // given out by Take, and nothing applied since
	spent  map[int]time.Time // removed then, but peers and connection tracking remember them
	doomed []int             // released, not removed yet
	cursor int               // where the search for a free index goes on
	gate   int               // index of the slot that no sandbox gets
	open   bool
	runs   bool
	busy   sync.WaitGroup // calls that work in the kernel; none begins unless open
	ending sync.Mutex     // Close and what comes after it, one at a time

	lost atomic.Int64 // flows that were not reported
}

// New makes a Manager. It touches nothing until Setup.
func New(cfg Config, log *slog.Logger) *Manager {
	return &Manager{
		cfg:    cfg,
		log:    log,
		kernel: &kernel{},
		wanted: make(chan struct{}, 1),
		gone:   make(chan struct{}, removers),
		held:   map[int]bool{},
		inUse:  map[int]bool{},
		fresh:  map[int]bool{},
		spent:  map[int]time.Time{},
	}
}

// Setup makes the machine ready for slots: the table of rules, forwarding, and
// the directory of namespaces. It fails with host.not_root,
// host.kernel_feature_missing or host.network_unavailable, and then has
// changed nothing. A host without an uplink is fine: its sandboxes have no
// internet.
func (m *Manager) Setup(ctx context.Context) error {
	cfg, err := m.cfg.withDefaults()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open {
		return nil
	}
	gate, err := m.kernel.setup(ctx, cfg)
	if err != nil {
		return err
	}
	m.cfg, m.open, m.gate = cfg, true, gate
	m.held[gate] = true
	// Starting anywhere keeps a restarted server from reusing the addresses
	// that peers and connection tracking still remember.
	m.cursor = rand.IntN(cfg.slots())
	return nil
}

// begin says that a call works in the kernel until it calls end. Close waits
// for it, so that it finds all there is.
func (m *Manager) begin() (end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return nil, errNotSetUp()
	}
	m.busy.Add(1)
	return m.busy.Done, nil
}

// Take gives a slot to a sandbox: one made ahead if there is one, at the price
// of a lock, else a new one. It fails with capacity.unavailable when all
// indexes are in use.
func (m *Manager) Take(ctx context.Context) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, ended(err)
	}
	end, err := m.begin()
	if err != nil {
		return Slot{}, err
	}
	defer end()
	if s, ok := m.takeReady(); ok {
		signal(m.wanted)
		return s, nil
	}
	s, err := m.make(ctx)
	if err != nil {
		return Slot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open { // Close waits, to remove it
		m.doomed = append(m.doomed, s.Index)
		return Slot{}, errNotSetUp()
	}
	m.inUse[s.Index], m.fresh[s.Index] = true, true
	return s, nil
}

func (m *Manager) takeReady() (Slot, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ready) == 0 {
		return Slot{}, false
	}
	s := m.ready[0]
	m.ready = slices.Delete(m.ready, 0, 1)
	m.inUse[s.Index], m.fresh[s.Index] = true, true
	return s, true
}

// Adopt takes again a slot that an earlier process of this owner gave out. It
// fails with host.network_unavailable, and says what is missing, when the slot
// is not whole. The rules that the process had applied stay in force until Apply
// is called anew. A slot that was adopted is not swept: whoever gives it up again
// has to release it.
func (m *Manager) Adopt(ctx context.Context, index int) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, ended(err)
	}
	end, err := m.begin()
	if err != nil {
		return Slot{}, err
	}
	defer end()
	if err := m.claim(index); err != nil {
		return Slot{}, err
	}
	s, err := m.kernel.adopt(index)
	if err != nil {
		m.forget(index)
		return Slot{}, err
	}
	m.mu.Lock()
	m.inUse[index] = true
	m.mu.Unlock()
	return s, nil
}

// claim takes an index for a slot that is there already.
func (m *Manager) claim(index int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[index] {
		return api.Errorf(api.CodeNetworkUnavailable, "network slot %d is in use already", index)
	}
	if index < 0 || index >= m.cfg.slots() {
		return api.Errorf(api.CodeNetworkUnavailable, "network slot %d is outside %s", index, m.cfg.Prefix)
	}
	m.held[index] = true
	return nil
}

// Release removes a slot whose sandbox has ended. While Run runs the removal is
// left to it; after Close it is done all the same. A slot that is not in use is
// nil.
func (m *Manager) Release(ctx context.Context, s Slot) error {
	m.mu.Lock()
	if !m.inUse[s.Index] {
		m.mu.Unlock()
		return nil
	}
	delete(m.inUse, s.Index)
	delete(m.fresh, s.Index)
	if m.runs {
		m.doomed = append(m.doomed, s.Index)
		m.mu.Unlock()
		signal(m.gone)
		return nil
	}
	remove := m.remove
	if m.open {
		m.busy.Add(1)
		defer m.busy.Done()
	} else {
		remove = func(i int) error { return m.removeLate(ctx, i) }
	}
	m.mu.Unlock()
	if err := remove(s.Index); err != nil {
		m.mu.Lock()
		m.inUse[s.Index] = true // so that a repeated Release tries again
		m.mu.Unlock()
		return err
	}
	return nil
}

func (m *Manager) removeLate(ctx context.Context, i int) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	return m.kernel.removeLate(ctx, i)
}

// Sweep removes the slots that an earlier process of this owner left and that
// neither keep nor this Manager names, and the rules of slots that are not there
// any more. One that cannot be removed yet is removed
// by Run.
func (m *Manager) Sweep(ctx context.Context, keep []int) error {
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	found, err := m.kernel.leftover()
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range found {
		if ctx.Err() != nil {
			return ended(ctx.Err())
		}
		m.mu.Lock()
		skip := m.held[i] || slices.Contains(keep, i)
		if !skip {
			m.held[i] = true
		}
		m.mu.Unlock()
		if skip {
			continue
		}
		m.kernel.disown(i)
		if err := m.remove(i); err != nil {
			errs = append(errs, err)
			m.doom(i) // for Run, or else for Close
		}
	}
	return errors.Join(errs...)
}

// doom leaves a slot to be removed in the background.
func (m *Manager) doom(i int) {
	m.mu.Lock()
	m.doomed = append(m.doomed, i)
	m.mu.Unlock()
	signal(m.gone)
}

// Close removes the slots that nobody took. Slots in use stay, to be adopted by
// the next process of this owner, and with them the gate and the rules. The last
// server on the machine to leave, with no slot left, removes the rules and
// restores the uplink.
func (m *Manager) Close(ctx context.Context) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	m.mu.Lock()
	if !m.open {
		m.mu.Unlock()
		return nil
	}
	m.open = false
	m.mu.Unlock()
	m.busy.Wait()

	m.mu.Lock()
	doomed := m.doomed
	for _, s := range m.ready {
		doomed = append(doomed, s.Index)
	}
	m.ready, m.doomed = nil, nil
	m.mu.Unlock()
	var errs []error
	for _, i := range doomed {
		errs = append(errs, m.remove(i))
	}
	m.recycle()
	return errors.Join(append(errs, m.kernel.close(ctx))...)
}

// Free is how many more slots Take can give, as far as this Manager knows: other
// servers on the machine use some too.
func (m *Manager) Free() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return 0
	}
	return m.cfg.slots() - len(m.held) + len(m.ready) + len(m.spent)
}

// Ready is how many slots are made and wait for Take.
func (m *Manager) Ready() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ready)
}

// Checks says what this host offers for sandbox networks and what stands in
// the way. It needs no Setup and changes nothing.
func (m *Manager) Checks(ctx context.Context) []Check {
	cfg, err := m.cfg.withDefaults()
	if err != nil {
		return []Check{{Name: "network configuration", Detail: api.AsError(err).Message}}
	}
	return m.kernel.checks(ctx, cfg)
}

// make creates a slot under the next index that nobody on the machine has.
func (m *Manager) make(ctx context.Context) (Slot, error) {
	s, ok, err := m.makeAny(ctx)
	if err == nil && !ok && m.recycle() > 0 {
		s, ok, err = m.makeAny(ctx)
	}
	if err == nil && !ok {
		err = api.Errorf(api.CodeCapacity, "all %d network slots of %s are in use", m.cfg.slots(), m.cfg.Prefix)
	}
	return s, err
}

func (m *Manager) makeAny(ctx context.Context) (s Slot, ok bool, err error) {
	for range m.cfg.slots() {
		if err := ctx.Err(); err != nil {
			return Slot{}, false, ended(err)
		}
		i, ok := m.reserve()
		if !ok {
			break
		}
		s, err := m.kernel.create(i)
		if err == nil {
			return s, true, nil
		}
		m.forget(i)
		if !errors.Is(err, errTaken) {
			return Slot{}, false, err
		}
	}
	return Slot{}, false, nil
}

// recycle makes the indexes of removed slots usable again, and says how many.
func (m *Manager) recycle() int {
	m.mu.Lock()
	spent := m.spent
	m.spent = map[int]time.Time{}
	m.mu.Unlock()
	if len(spent) == 0 {
		return 0
	}
	err := m.kernel.cutReleased(spent)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.log.Warn("connections of sandboxes that are gone are not forgotten yet", "error", err)
		maps.Copy(m.spent, spent)
		return 0
	}
	for i := range spent {
		delete(m.held, i)
	}
	return len(spent)
}

func (m *Manager) reserve() (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.cfg.slots()
	for range n {
		i := m.cursor
		m.cursor = (m.cursor + 1) % n
		if !m.held[i] {
			m.held[i] = true
			return i, true
		}
	}
	return 0, false
}

// remove takes a slot off the machine. Its index is used again after recycle.
func (m *Manager) remove(i int) error {
	if err := m.kernel.remove(i); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent[i] = time.Now()
	return nil
}

func (m *Manager) forget(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, i)
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func errNotSetUp() error {
	return api.Errorf(api.CodeNetworkUnavailable, "the sandbox network is not set up")
}

func ended(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return api.Wrap(api.CodeTimeout, err, "no network slot came in time")
	}
	return api.Wrap(api.CodeCanceled, err, "waiting for a network slot was given up")
}
