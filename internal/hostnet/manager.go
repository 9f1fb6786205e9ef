package hostnet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

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
	ready  []Slot       // made ahead
	held   map[int]bool // every index of ours: being made, ready, in use, being removed
	inUse  map[int]bool // given out by Take or Adopt
	doomed []int        // released, not removed yet
	cursor int          // where the search for a free index goes on
	open   bool
	runs   bool
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
	if err := m.kernel.setup(ctx, cfg); err != nil {
		return err
	}
	m.cfg, m.open = cfg, true
	// Starting anywhere keeps a restarted server from reusing the addresses
	// that peers and connection tracking still remember.
	m.cursor = rand.IntN(cfg.slots())
	return nil
}

// Take gives a slot to a sandbox: one made ahead if there is one, at the price
// of a lock, else a new one. It fails with capacity.unavailable when all
// indexes are in use.
func (m *Manager) Take(ctx context.Context) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, ended(err)
	}
	m.mu.Lock()
	if !m.open {
		m.mu.Unlock()
		return Slot{}, errNotSetUp()
	}
	if n := len(m.ready); n > 0 {
		s := m.ready[0]
		m.ready = slices.Delete(m.ready, 0, 1)
		m.inUse[s.Index] = true
		m.mu.Unlock()
		signal(m.wanted)
		return s, nil
	}
	m.mu.Unlock()
	s, err := m.make(ctx)
	if err != nil {
		return Slot{}, err
	}
	m.mu.Lock()
	m.inUse[s.Index] = true
	m.mu.Unlock()
	return s, nil
}

// Adopt takes again a slot that an earlier process of this owner gave out. It
// fails with host.network_unavailable, and says what is missing, when the slot
// is not whole.
func (m *Manager) Adopt(ctx context.Context, index int) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, ended(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return Slot{}, errNotSetUp()
	}
	if m.held[index] {
		return Slot{}, api.Errorf(api.CodeNetworkUnavailable, "network slot %d is in use already", index)
	}
	if index < 0 || index >= m.cfg.slots() {
		return Slot{}, api.Errorf(api.CodeNetworkUnavailable, "network slot %d is outside %s", index, m.cfg.Prefix)
	}
	s, err := m.kernel.adopt(index)
	if err != nil {
		return Slot{}, err
	}
	m.held[index], m.inUse[index] = true, true
	return s, nil
}

// Release removes a slot whose sandbox has ended. While Run runs the removal is
// left to it. A slot that is not in use is nil.
func (m *Manager) Release(ctx context.Context, s Slot) error {
	m.mu.Lock()
	if !m.inUse[s.Index] {
		m.mu.Unlock()
		return nil
	}
	delete(m.inUse, s.Index)
	if m.runs {
		m.doomed = append(m.doomed, s.Index)
		m.mu.Unlock()
		signal(m.gone)
		return nil
	}
	m.mu.Unlock()
	if err := m.remove(s.Index); err != nil {
		m.mu.Lock()
		m.inUse[s.Index] = true // so that a repeated Release tries again
		m.mu.Unlock()
		return err
	}
	return nil
}

// Sweep removes the slots that an earlier process of this owner left and that
// neither keep nor this Manager names.
func (m *Manager) Sweep(ctx context.Context, keep []int) error {
	m.mu.Lock()
	open := m.open
	m.mu.Unlock()
	if !open {
		return errNotSetUp()
	}
	found, err := m.kernel.owned()
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
		if !skip {
			errs = append(errs, m.remove(i))
		}
	}
	return errors.Join(errs...)
}

// Close removes the slots that nobody took. Slots in use stay, to be adopted by
// the next process of this owner. The last server on the machine to leave, with
// no slot left, removes the rules and restores the uplink.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if !m.open {
		m.mu.Unlock()
		return nil
	}
	m.open = false
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
	return m.cfg.slots() - len(m.held) + len(m.ready)
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
	for range m.cfg.slots() {
		if err := ctx.Err(); err != nil {
			return Slot{}, ended(err)
		}
		i, ok := m.reserve()
		if !ok {
			break
		}
		s, err := m.kernel.create(i)
		if err == nil {
			return s, nil
		}
		m.forget(i)
		if !errors.Is(err, errTaken) {
			return Slot{}, err
		}
	}
	return Slot{}, api.Errorf(api.CodeCapacity, "all %d network slots of %s are in use", m.cfg.slots(), m.cfg.Prefix)
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

// remove takes a slot off the machine and gives its index back.
func (m *Manager) remove(i int) error {
	if err := m.kernel.remove(i); err != nil {
		return err
	}
	m.forget(i)
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
