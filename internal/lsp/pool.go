package lsp

import (
	"context"
	"sync"
	"time"
)

// Key names a language server: the one for a language in a sandbox.
type Key struct{ Sandbox, Language string }

// Pool keeps one server for each key that is used. The zero value is ready.
type Pool struct {
	Idle time.Duration // see New

	mu     sync.Mutex
	slots  map[Key]*slot
	closed bool
}

// slot is the place of one server. Who waits for its lock is counted, so that it
// is not thrown away under them.
type slot struct {
	turn  chan struct{} // holds one token
	users int
	hub   *Hub
}

// Join makes a client of the server of a key, which start starts if none runs.
func (p *Pool) Join(ctx context.Context, key Key, start func(context.Context) (Process, error)) (*Client, error) {
	s := p.slot(key)
	defer p.release(key, s)
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.turn }()
	if hub := p.hubOf(s); hub != nil {
		if c, err := hub.Join(); err != errEnded {
			return c, err
		}
		select {
		case <-hub.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	proc, err := start(ctx)
	if err != nil {
		return nil, err
	}
	hub := New(context.WithoutCancel(ctx), proc, p.Idle)
	if !p.keep(key, s, hub) {
		hub.Close()
		return nil, errEnded
	}
	return hub.Join()
}

func (p *Pool) slot(key Key) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots == nil {
		p.slots = make(map[Key]*slot)
	}
	s := p.slots[key]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		p.slots[key] = s
	}
	s.users++
	return s
}

func (p *Pool) release(key Key, s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	p.drop(key, s)
}

// drop forgets a slot that nobody uses.
func (p *Pool) drop(key Key, s *slot) {
	if s.users == 0 && s.hub == nil {
		delete(p.slots, key)
	}
}

func (p *Pool) hubOf(s *slot) *Hub {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.hub
}

// keep puts a server into its slot until it ends.
func (p *Pool) keep(key Key, s *slot, hub *Hub) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	s.hub = hub
	go func() {
		<-hub.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.hub == hub {
			s.hub = nil
			p.drop(key, s)
		}
	}()
	return true
}

// Close ends every server and waits for that. No more are kept after it.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var hubs []*Hub
	for _, s := range p.slots {
		if s.hub != nil {
			hubs = append(hubs, s.hub)
		}
	}
	p.mu.Unlock()
	for _, h := range hubs {
		h.Close()
	}
}
