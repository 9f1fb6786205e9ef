package bench

import (
	"context"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

const firstOutput = "create to first output"

// interactive creates a sandbox and waits for its first output, which is the
// moment it is of use, and adds the times to the rows; call may be nil.
func (t *target) interactive(ctx context.Context, in api.CreateSandbox, call, total *row) *client.Sandbox {
	from := time.Now()
	sb, err := t.create(ctx, in)
	if err != nil {
		total.fail(err)
		return nil
	}
	if created, ok := total.answered(ctx, sb, "echo hello", from); ok && call != nil {
		call.took(created)
		call.boot(sb.BootSteps)
	}
	return sb
}

// answered takes the time from a call, which has made a sandbox just now, until
// the sandbox's first output, and splits it into steps: those of the host, which
// are within the call, and as "client" the call and the command as seen from
// here. It gives the time of the call.
func (r *row) answered(ctx context.Context, sb *client.Sandbox, line string, from time.Time) (call time.Duration, ok bool) {
	call = time.Since(from)
	if err := answers(ctx, sb, line); err != nil {
		r.fail(err)
		return call, false
	}
	total := time.Since(from)
	r.took(total)
	r.boot(sb.BootSteps)
	r.step("client.call", milliseconds(call))
	r.step("client.command", milliseconds(total-call))
	return call, true
}

// gone deletes a sandbox that may be nil, and rests.
func gone(ctx context.Context, sb *client.Sandbox) error {
	if sb != nil {
		if err := sb.Delete(ctx); err != nil {
			return err
		}
	}
	if !pause(ctx, rest) {
		return ctx.Err()
	}
	return nil
}

func openSequential(_ context.Context, t *target) (*session, error) {
	s := &session{rounds: t.options.Count, warm: 3}
	create, total := s.row("create", "ms"), s.row(firstOutput, "ms").aim(30, 60)
	s.round = func(ctx context.Context) error {
		return gone(ctx, t.interactive(ctx, api.CreateSandbox{}, create, total))
	}
	return s, nil
}

func openStaggered(_ context.Context, t *target) (*session, error) {
	return t.paced(t.options.Count, 200*time.Millisecond), nil
}

func openRate(_ context.Context, t *target) (*session, error) {
	const perSecond, seconds = 20, 10
	return t.paced(perSecond*seconds, time.Second/perSecond), nil
}

// paced starts n creates at fixed times, whether or not earlier ones have
// answered, so that a slow answer is not hidden by waiting for it.
func (t *target) paced(n int, every time.Duration) *session {
	s := &session{rounds: 1}
	total, done := s.row(firstOutput, "ms"), s.row("created, used and deleted", "1/s")
	s.round = func(ctx context.Context) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		from := time.Now()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for range n {
			wg.Go(func() {
				if sb := t.interactive(ctx, api.CreateSandbox{}, nil, total); sb != nil {
					if err := sb.Delete(ctx); err != nil {
						total.fail(err)
					}
				}
			})
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		wg.Wait()
		done.add(float64(len(total.values)) / time.Since(from).Seconds())
		return nil
	}
	return s
}

func openBurst(_ context.Context, t *target) (*session, error) {
	s := &session{rounds: 1}
	total, last := s.row(firstOutput, "ms"), s.row("until the last answered", "ms")
	if t.options.Count == 100 {
		last.aim(3500, 0)
	}
	s.round = func(ctx context.Context) error {
		from := time.Now()
		var wg sync.WaitGroup
		for range t.options.Count {
			wg.Go(func() { t.interactive(ctx, api.CreateSandbox{}, nil, total) })
		}
		wg.Wait()
		if total.errors == 0 { // else the last has not answered
			last.took(time.Since(from))
			last.steps = total.steps
		}
		return nil
	}
	return s, nil
}

// openDensity keeps many sandboxes and asks each of them again once all are
// there.
func openDensity(_ context.Context, t *target) (*session, error) {
	s := &session{rounds: t.options.Density}
	total, again := s.row(firstOutput, "ms"), s.row("echo with all there", "ms")
	memory := s.row("memory of an idle sandbox (PSS)", "MB").aim(20, 0)
	var boxes []*client.Sandbox
	s.round = func(ctx context.Context) error {
		if sb := t.interactive(ctx, api.CreateSandbox{}, nil, total); sb != nil {
			boxes = append(boxes, sb)
		}
		return nil
	}
	s.end = func(ctx context.Context) error {
		if !pause(ctx, 5*time.Second) { // let the runtimes return what they used to start
			return ctx.Err()
		}
		for _, sb := range boxes {
			from := time.Now()
			if err := echo(ctx, sb); err != nil {
				again.fail(err)
				continue
			}
			again.took(time.Since(from))
			t.weigh(ctx, sb, memory)
		}
		return nil
	}
	return s, nil
}

// weigh adds the memory of a sandbox whose server is on this machine, when this
// is root.
func (t *target) weigh(ctx context.Context, sb *client.Sandbox, memory *row) {
	if !t.local() {
		return
	}
	if m, err := sb.Metrics(ctx); err == nil {
		if pss, ok := proportionalMemory(m.PID); ok {
			memory.add(float64(pss) / 1e6)
		}
	}
}
