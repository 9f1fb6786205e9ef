package hostnet

import (
	"context"
	"sync"
	"time"
)

// How often Run looks whether the rules are still in place (a firewall manager
// that reloads removes them with its own), and whether the host has moved to
// another uplink or resolver, and how often it forgets the connections of slots
// that are gone.
const (
	guardEvery   = 2 * time.Second
	refreshEvery = 30 * time.Second
	recycleEvery = 30 * time.Second
)

// removers work at the same time: a removal takes some 30 ms, nearly all of it
// waiting for every CPU to have let go of the interface.
const removers = 2

// Waiting times after a slot could not be made or removed.
const (
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Run makes slots ahead, removes released ones and keeps the rules in place. It
// returns nil when ctx has ended, after the removals that were asked for.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if !m.open {
		m.mu.Unlock()
		return errNotSetUp()
	}
	m.runs = true
	m.mu.Unlock()

	var workers sync.WaitGroup
	workers.Go(func() { m.guard(ctx) })
	workers.Go(func() { m.work(ctx, m.wanted, "network slot not made", m.makeOne) })
	for range removers {
		workers.Go(func() { m.work(ctx, m.gone, "network slot not removed", m.removeOne) })
	}
	workers.Wait()

	m.mu.Lock()
	m.runs = false
	m.mu.Unlock()
	// From here on Release removes by itself; what it left before is ours.
	var failed []int
	for {
		i, ok := m.nextDoomed()
		if !ok {
			break
		}
		if err := m.remove(i); err != nil {
			m.log.Warn("network slot not removed yet", "slot", i, "error", err)
			failed = append(failed, i)
		}
	}
	for _, i := range failed {
		m.doom(i) // Close tries again
	}
	return nil
}

// work repeats a step until it has nothing to do, waits to be woken, and goes
// slower while the step fails.
func (m *Manager) work(ctx context.Context, wake <-chan struct{}, failure string, step func(context.Context) (bool, error)) {
	wait := retryFirst
	for ctx.Err() == nil {
		did, err := step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			m.log.Warn(failure, "error", err, "retry", wait)
			sleep(ctx, wait)
			wait = min(2*wait, retryMost)
		case did:
			wait = retryFirst
		default:
			select {
			case <-ctx.Done():
			case <-wake:
			}
		}
	}
}

func (m *Manager) makeOne(ctx context.Context) (bool, error) {
	m.mu.Lock()
	enough := len(m.ready) >= m.cfg.Ahead || len(m.held) >= m.cfg.slots()
	m.mu.Unlock()
	if enough {
		return false, nil
	}
	s, err := m.make(ctx)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	m.ready = append(m.ready, s)
	m.mu.Unlock()
	return true, nil
}

func (m *Manager) removeOne(context.Context) (bool, error) {
	i, ok := m.nextDoomed()
	if !ok {
		return false, nil
	}
	if err := m.remove(i); err != nil {
		m.doom(i)
		return false, err
	}
	return true, nil
}

func (m *Manager) nextDoomed() (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.doomed) == 0 {
		return 0, false
	}
	i := m.doomed[0]
	m.doomed = m.doomed[1:]
	return i, true
}

// guard puts the rules back when something removed them.
func (m *Manager) guard(ctx context.Context) {
	check := time.NewTicker(guardEvery)
	defer check.Stop()
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	recycle := time.NewTicker(recycleEvery)
	defer recycle.Stop()
	for {
		var restored bool
		var err error
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			restored, err = m.kernel.ensureRules(ctx)
		case <-refresh.C:
			err = m.kernel.refresh(ctx)
		case <-recycle.C:
			m.recycle()
		}
		if restored {
			m.log.Warn("the rules of sandbox networks had been removed by another program; they are back")
		}
		if err != nil && ctx.Err() == nil {
			m.log.Error("the rules of sandbox networks cannot be kept in place", "error", err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
