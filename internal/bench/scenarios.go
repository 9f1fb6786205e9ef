package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func (r *runner) create(ctx context.Context) (*client.Sandbox, error) {
	return r.Client.Sandboxes.Create(ctx, api.CreateSandbox{Template: r.Template, Metadata: map[string]string{"made-by": "bench"}})
}

// echo runs a command and checks that its output came back.
func echo(ctx context.Context, sb *client.Sandbox) error {
	res, err := sb.Shell(ctx, "echo hello")
	if err != nil {
		return err
	}
	if strings.TrimSpace(res.Stdout) != "hello" {
		return fmt.Errorf("echo answered %q, exit %d, %q", res.Stdout, res.ExitCode, res.Stderr)
	}
	return nil
}

// interactive creates a sandbox and waits for its first output, which is the
// moment it is of use. The caller deletes it.
func (r *runner) interactive(ctx context.Context) (sb *client.Sandbox, created, total time.Duration, err error) {
	from := time.Now()
	if sb, err = r.create(ctx); err != nil {
		return nil, 0, 0, err
	}
	created = time.Since(from)
	err = echo(ctx, sb)
	return sb, created, time.Since(from), err
}

// rest lets the server finish what it does after an answer (removing the last
// sandbox, making the next shell), as a user's pause between creates would.
const rest = 150 * time.Millisecond

func (r *runner) ttiOf(ctx context.Context) error {
	var create, total samples
	for i := range r.N + 3 {
		sb, created, all, err := r.interactive(ctx)
		if err == nil && i >= 3 { // the first ones open connections and fill caches
			create.add(milliseconds(created))
			total.add(milliseconds(all))
			for _, s := range sb.BootSteps {
				create.step(s.Name, s.MS)
			}
		}
		if err != nil {
			total.fail(err)
		}
		if sb != nil {
			if err := sb.Delete(ctx); err != nil {
				return err
			}
		}
		if !pause(ctx, rest) {
			return ctx.Err()
		}
	}
	r.results = append(r.results, create.result("tti", "create", "ms"), total.result("tti", "create to first output", "ms"))
	return nil
}

func (r *runner) execOf(ctx context.Context) error {
	sb, err := r.create(ctx)
	if err != nil {
		return err
	}
	defer sb.Delete(context.WithoutCancel(ctx))
	if err := echo(ctx, sb); err != nil {
		return err
	}
	if !pause(ctx, 3*time.Second) { // warm: its clock is calibrated, its start is behind it
		return ctx.Err()
	}
	for _, c := range []struct {
		what string
		run  func() (*api.ExecResult, error)
	}{
		{"true", func() (*api.ExecResult, error) { return sb.Exec(ctx, "/bin/true") }},
		{"sh -c true", func() (*api.ExecResult, error) { return sb.Shell(ctx, "true") }},
		{"python3 -c pass", func() (*api.ExecResult, error) { return sb.Exec(ctx, "python3", "-c", "pass") }},
	} {
		var s samples
		for i := range r.N + 5 {
			from := time.Now()
			_, err := c.run()
			if err != nil {
				s.fail(err)
			} else if i >= 5 {
				s.add(milliseconds(time.Since(from)))
			}
		}
		r.results = append(r.results, s.result("exec", c.what, "ms"))
	}
	return nil
}

// rateOf starts creates at fixed times, whether or not earlier ones have
// answered, so that a slow answer is not hidden by waiting for it.
func (r *runner) rateOf(ctx context.Context) error {
	const perSecond, seconds = 20, 10
	var mu sync.Mutex
	var s samples
	var wg sync.WaitGroup
	from := time.Now()
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for range perSecond * seconds {
		select {
		case <-ctx.Done():
			wg.Wait()
			return ctx.Err()
		case <-tick.C:
		}
		wg.Go(func() {
			sb, _, total, err := r.interactive(ctx)
			mu.Lock()
			if err != nil {
				s.fail(err)
			} else {
				s.add(milliseconds(total))
			}
			mu.Unlock()
			if sb != nil {
				sb.Delete(ctx)
			}
		})
	}
	wg.Wait()
	done := samples{values: []float64{float64(len(s.values)) / time.Since(from).Seconds()}}
	r.results = append(r.results, s.result("rate", "create to first output", "ms"), done.result("rate", "created, used and deleted", "1/s"))
	return nil
}

func (r *runner) burstOf(ctx context.Context) error {
	var s samples
	from := time.Now()
	boxes := r.together(ctx, r.N, &s)
	last := samples{values: []float64{milliseconds(time.Since(from))}}
	r.deleteAll(ctx, boxes)
	r.results = append(r.results, s.result("burst", "create to first output", "ms"), last.result("burst", "until the last answered", "ms"))
	return nil
}

// together creates n sandboxes at once.
func (r *runner) together(ctx context.Context, n int, s *samples) []*client.Sandbox {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var boxes []*client.Sandbox
	for range n {
		wg.Go(func() {
			sb, _, total, err := r.interactive(ctx)
			mu.Lock()
			defer mu.Unlock()
			if sb != nil {
				boxes = append(boxes, sb)
			}
			if err != nil {
				s.fail(err)
				return
			}
			s.add(milliseconds(total))
		})
	}
	wg.Wait()
	return boxes
}

func (r *runner) deleteAll(ctx context.Context, boxes []*client.Sandbox) {
	ctx = context.WithoutCancel(ctx)
	var wg sync.WaitGroup
	gate := make(chan struct{}, 8)
	for _, sb := range boxes {
		wg.Go(func() {
			gate <- struct{}{}
			sb.Delete(ctx)
			<-gate
		})
	}
	wg.Wait()
}

func (r *runner) filesOf(ctx context.Context) error {
	sb, err := r.create(ctx)
	if err != nil {
		return err
	}
	defer sb.Delete(context.WithoutCancel(ctx))
	data := make([]byte, 16<<20)
	rand.Read(data)
	var up, down samples
	for range 10 {
		from := time.Now()
		if err := sb.Files.WriteFile(ctx, "/home/user/bench.bin", data); err != nil {
			up.fail(err)
			continue
		}
		up.add(float64(len(data)) / 1e6 / time.Since(from).Seconds())
		from = time.Now()
		f, err := sb.Files.Open(ctx, "/home/user/bench.bin")
		if err != nil {
			down.fail(err)
			continue
		}
		n, err := io.Copy(io.Discard, f)
		f.Close()
		if err != nil || n != int64(len(data)) {
			down.fail(fmt.Errorf("read %d of %d bytes: %w", n, len(data), err))
			continue
		}
		down.add(float64(n) / 1e6 / time.Since(from).Seconds())
	}
	r.results = append(r.results, up.result("files", "write", "MB/s"), down.result("files", "read", "MB/s"))
	return nil
}

// densityOf keeps many sandboxes and asks each of them again once all are there.
func (r *runner) densityOf(ctx context.Context) error {
	var s, again, memory samples
	var boxes []*client.Sandbox
	defer func() { r.deleteAll(ctx, boxes) }()
	for range r.Density {
		sb, _, total, err := r.interactive(ctx)
		if sb != nil {
			boxes = append(boxes, sb)
		}
		if err != nil {
			s.fail(err)
			continue
		}
		s.add(milliseconds(total))
	}
	if !pause(ctx, 5*time.Second) { // let the runtimes return what they used to start
		return ctx.Err()
	}
	for _, sb := range boxes {
		from := time.Now()
		if err := echo(ctx, sb); err != nil {
			again.fail(err)
			continue
		}
		again.add(milliseconds(time.Since(from)))
		if m, err := sb.Metrics(ctx); err == nil {
			if pss, ok := proportionalMemory(m.PID); ok {
				memory.add(float64(pss) / 1e6)
			}
		}
	}
	r.results = append(r.results, s.result("density", "create to first output", "ms"), again.result("density", "echo with all there", "ms"))
	if len(memory.values) > 0 { // the server is on this machine
		r.results = append(r.results, memory.result("density", "memory of an idle sandbox (PSS)", "MB"))
	}
	return nil
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
