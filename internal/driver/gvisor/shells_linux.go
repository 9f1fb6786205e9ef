package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// shellKey is what must be equal for a shell to serve a start: a sentry is told
// its image and its sizes when it starts.
type shellKey struct {
	image  string
	limits driver.Limits
}

func keyOf(spec driver.Spec) shellKey { return shellKey{spec.Image.Path, spec.Limits} }

// shells keeps started runtime processes without a guest. One goroutine makes
// them, one at a time, while starts leave the machine some air.
type shells struct {
	d      *Driver
	mu     sync.Mutex
	want   map[shellKey]int
	ready  map[shellKey][]*sentry
	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
	last   time.Time // when a shell was last taken
}

func (p *shells) init(d *Driver) {
	p.d = d
	p.want = map[shellKey]int{}
	p.ready = map[shellKey][]*sentry{}
	p.wake = make(chan struct{}, 1)
}

// Prepare implements driver.Driver.
func (d *Driver) Prepare(ctx context.Context, spec driver.Spec, n int) {
	spec.Limits = withDefaults(spec.Limits)
	d.shell.prepare(context.WithoutCancel(ctx), keyOf(spec), n)
}

func (p *shells) prepare(ctx context.Context, key shellKey, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.want {
		if k.image == key.image && k != key {
			delete(p.want, k)
		}
	}
	p.want[key] = n
	if n == 0 {
		delete(p.want, key)
	}
	if p.cancel == nil {
		ctx, p.cancel = context.WithCancel(ctx)
		p.done = make(chan struct{})
		go p.run(ctx)
	}
	p.signal()
}

func (p *shells) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take gives a shell away, or nil. One whose process has died is thrown out.
func (p *shells) take(ctx context.Context, key shellKey) *sentry {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	p.last = time.Now()
	for len(p.ready[key]) > 0 {
		s := p.ready[key][0]
		p.ready[key] = p.ready[key][1:]
		if running(s.pid, s.started) {
			return s
		}
		p.d.discard(context.WithoutCancel(ctx), s)
	}
	return nil
}

// settle is how long a start is left alone before its shell is replaced: the
// first command of a new sandbox should not share the CPU with it.
const settle = 40 * time.Millisecond

// run keeps the shelves full until ctx ends.
func (p *shells) run(ctx context.Context) {
	defer close(p.done)
	for {
		key, surplus, short, low := p.next()
		for _, s := range surplus {
			p.d.discard(context.WithoutCancel(ctx), s)
		}
		if !short {
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			}
			continue
		}
		if !low && !p.quiet(ctx) {
			return
		}
		if err := p.add(ctx, key, !low); err != nil {
			if ctx.Err() != nil {
				return
			}
			p.d.cfg.Log.Warn("cannot make a shell", "driver", Name, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
}

// quiet waits until no shell was taken for a moment. It reports false when ctx
// has ended.
func (p *shells) quiet(ctx context.Context) bool {
	for {
		p.mu.Lock()
		rest := settle - time.Since(p.last)
		p.mu.Unlock()
		if rest <= 0 {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(rest):
		}
	}
}

// next says what to do: shells nobody wants any more, and a key that is short of
// shells, if any. low means that fewer than half are left.
func (p *shells) next() (key shellKey, surplus []*sentry, short, low bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, list := range p.ready {
		if extra := len(list) - p.want[k]; extra > 0 {
			surplus = append(surplus, list[:extra]...)
			p.ready[k] = list[extra:]
		}
		if len(p.ready[k]) == 0 {
			delete(p.ready, k)
		}
	}
	for k, n := range p.want {
		if have := len(p.ready[k]); have < n {
			return k, surplus, true, have*2 < n
		}
	}
	return key, surplus, false, false
}

// add makes one shell, and lets it warm up if there is time for it.
func (p *shells) add(ctx context.Context, key shellKey, warm bool) error {
	id := api.NewID()
	dir := filepath.Join(shellsDir(p.d.cfg.StateDir), id)
	if err := p.d.setup(); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s, err := p.d.newSentry(ctx, id, dir, driver.Spec{Image: driver.Image{Path: key.image}, Limits: key.limits, Hostname: "sandbox"})
	if err != nil {
		os.RemoveAll(dir)
		return err
	}
	if warm {
		s.awaitWarm(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready[key] = append(p.ready[key], s)
	return nil
}

// close ends the maker and every shell.
func (p *shells) close(ctx context.Context) {
	p.mu.Lock()
	cancel, done := p.cancel, p.done
	p.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, list := range p.ready {
		for _, s := range list {
			p.d.discard(ctx, s)
		}
		delete(p.ready, k)
	}
	clear(p.want)
}

// Close implements driver.Driver.
func (d *Driver) Close(ctx context.Context) error {
	d.shell.close(context.WithoutCancel(ctx))
	return nil
}
