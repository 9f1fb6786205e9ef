package agent

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
)

// bake is the making of one snapshot: a machine is started cold from the image
// in a scratch directory, its guest settles, and what it is then becomes what
// every later create restores.
type bake struct {
	template string
	driver   driver.Driver
	image    image.Image
	sizes    sizes
	dir      string // of the snapshot

	id      string
	slot    hostnet.Slot
	machine driver.Machine
}

func (b *bake) spec(scratch string) driver.Spec {
	return driver.Spec{
		ID:       b.id,
		Dir:      scratch,
		Image:    driver.Image{Path: b.image.Path, Digest: b.image.Digest},
		Limits:   b.sizes.limits(),
		Network:  networkOf(b.slot),
		Hostname: "sandbox",
	}
}

// baked waits until the snapshot is there and gives its generation.
func (c *catalogue) baked(ctx context.Context, b bake) (int, error) {
	if generation, ok := c.usableSnapshot(b.dir); ok {
		c.prepare(ctx, b, generation)
		return generation, nil
	}
	key := bakeKey(b.dir)
	if err := c.failed.holds(key); err != nil {
		return 0, err
	}
	err := c.agent.flights.do(ctx, key, func(ctx context.Context) error {
		if _, ok := c.usableSnapshot(b.dir); ok {
			return nil // another flight made it between the look and this one
		}
		return c.bake(ctx, &b)
	})
	if err != nil {
		return 0, err
	}
	generation, ok := c.usableSnapshot(b.dir)
	if !ok {
		return 0, api.Errorf(api.CodeBootFailed, "the snapshot of template %q was removed while it was waited for", b.template)
	}
	c.prepare(ctx, b, generation)
	return generation, nil
}

// prepare has the driver keep shells for one of the agent's own templates, once
// for each generation of its snapshot.
func (c *catalogue) prepare(ctx context.Context, b bake, generation int) {
	if _, own := c.own[b.template]; !own || c.agent.cfg.Shells <= 0 {
		return
	}
	c.mu.Lock()
	s := c.state(b.dir)
	due := s.prepared != generation+1
	s.prepared = generation + 1
	c.mu.Unlock()
	if due {
		spec := b.spec("")
		spec.Snapshot = b.dir
		b.driver.Prepare(ctx, spec, c.agent.cfg.Shells)
	}
}

func bakeKey(dir string) string { return "bake " + filepath.Base(dir) }

// bake makes the snapshot and notes how that ended.
func (c *catalogue) bake(ctx context.Context, b *bake) error {
	began := time.Now()
	log := c.agent.log.With("template", b.template, "driver", b.driver.Name())
	log.Info("baking a template's snapshot")
	defer c.report(b.template, work{})
	c.report(b.template, work{step: "baking the snapshot", percent: 100})
	b.id = api.NewID()
	p := &progress{op: "bake", fault: c.agent.cfg.Fault}
	err := runSteps(ctx, p, c.bakeSteps(), b)
	if left := p.undo.run(ctx); left != nil {
		log.Error("the machine of a bake could not be removed; the next start sweeps it", "error", left)
	}
	if err != nil && api.CodeOf(err) == api.CodeInternal {
		err = api.Wrap(api.CodeBootFailed, err, "the snapshot of template %q could not be baked", b.template)
	}
	if ctx.Err() == nil {
		c.failed.note(bakeKey(b.dir), err)
	}
	c.agent.observe(Observation{Op: "bake", Template: b.template, Driver: b.driver.Name(), Took: time.Since(began), Steps: p.timings, Err: err})
	if err == nil {
		log.Info("baked a template's snapshot", "took", time.Since(began))
	}
	return err
}

// bakeSteps is the whole of a bake. All of it but the snapshot is undone in any
// case.
func (c *catalogue) bakeSteps() []step[*bake] {
	a := c.agent
	scratch := func(b *bake) string { return filepath.Join(a.scratch(), b.id) }
	unfinished := func(b *bake) string { return a.unfinished(b.id) }
	return []step[*bake]{
		{"slot", func(ctx context.Context, b *bake) (err error) {
			b.slot, err = a.place(ctx, b.id, host.Network{})
			return err
		}, func(ctx context.Context, b *bake) error {
			return a.cfg.Network.Release(ctx, b.slot)
		}},
		{"disk", func(_ context.Context, b *bake) error {
			return os.Mkdir(scratch(b), 0o700)
		}, func(_ context.Context, b *bake) error {
			return os.RemoveAll(scratch(b))
		}},
		{"start", func(ctx context.Context, b *bake) (err error) {
			b.machine, err = bounded(ctx, a.cfg.ColdTimeout, "start", func(ctx context.Context) (driver.Machine, error) {
				return b.driver.Start(ctx, b.spec(scratch(b)))
			})
			return err
		}, func(ctx context.Context, b *bake) error {
			return b.machine.Stop(ctx)
		}},
		{"settle", a.settle, nil},
		{"snapshot", func(ctx context.Context, b *bake) error {
			return b.machine.Snapshot(ctx, unfinished(b))
		}, func(_ context.Context, b *bake) error {
			return os.RemoveAll(unfinished(b))
		}},
		{"publish", func(_ context.Context, b *bake) error {
			return os.Rename(unfinished(b), b.dir)
		}, nil},
	}
}

// settleTimeout bounds each program that a guest runs before its snapshot.
const settleTimeout = 20 * time.Second

// codeTimeout bounds the start of a template's code contexts.
const codeTimeout = 2 * time.Minute

// settle lets the guest do once what sandboxes do first, so that every restored
// one finds its programs and the daemon's own memory warm. A template without
// some of the programs is served as well.
func (a *Agent) settle(ctx context.Context, b *bake) error {
	client := guest.NewClient(b.machine.Dial, "")
	defer client.Close()
	_, err := bounded(ctx, a.cfg.ColdTimeout, "answer", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.Health(ctx)
	})
	if err != nil {
		return err
	}
	if err := a.rehearse(ctx, client); err != nil {
		return err
	}
	for _, line := range []string{"true", "echo hello >/dev/null", "python3 -c pass", "node -e 0"} {
		if err := warm(ctx, client, line); err != nil {
			if ctx.Err() != nil {
				return contextError(ctx)
			}
			a.log.Debug("a program did not run before the snapshot", "template", b.template, "line", line, "error", err)
		}
	}
	return a.warmCode(ctx, b, client)
}

// warmCode waits for the code contexts that the image asks for, so that every
// restored sandbox has them. Without them it serves as well.
func (a *Agent) warmCode(ctx context.Context, b *bake, client *guest.Client) error {
	limited, cancel := context.WithTimeout(ctx, codeTimeout)
	defer cancel()
	err := client.WarmCode(limited)
	if err != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	if err != nil {
		a.log.Warn("the code contexts of a template did not start before the snapshot", "template", b.template, "error", err)
	}
	return nil
}

// rehearse tells the guest who it is, as every create will: the files that this
// writes are then in the snapshot, and what it runs through is in memory. It
// sets no token, so the next one may tell it again.
func (a *Agent) rehearse(ctx context.Context, client *guest.Client) error {
	for range 3 {
		err := client.Init(ctx, guest.Init{
			Hostname: "sandbox", ID: "sandbox", Template: "none", EnvVars: map[string]string{},
			Nameservers: a.cfg.Network.Nameservers(), Identity: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// warm runs one shell line in the guest to its end.
func warm(ctx context.Context, client *guest.Client, line string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	p, err := client.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", line}, Timeout: settleTimeout})
	if err != nil {
		return err
	}
	defer p.Close()
	for {
		event, err := p.Recv()
		if err != nil {
			return err
		}
		if event.Exit != nil {
			return nil
		}
	}
}
