package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

const (
	runLabel     = "pandastack.bench" // label of all that a run makes; its value is the run
	lifetime     = 30 * 60            // seconds; should this program be killed
	callLimit    = 2 * time.Minute    // of a call that makes something
	cleanUpLimit = 3 * time.Minute
)

// target is a server under measurement, and what was found there.
type target struct {
	*client.Client
	options *Options
	run     string
	side    Side
	keeps   bool // has made snapshots, which no time to live removes
}

func (t *target) labels() map[string]string { return map[string]string{runLabel: t.run} }

// some is the number of samples of a scenario that takes at most limit.
func (t *target) some(limit int) int { return min(t.options.Count, limit) }

// whole is the context of a call that makes something. An interrupt does not cut
// it short: what it made would stay, unknown to everybody.
func whole(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callLimit)
}

func (t *target) create(ctx context.Context, in api.CreateSandbox) (*client.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ttl := lifetime
	in.Metadata, in.TTLSeconds = t.labels(), &ttl
	if in.FromSnapshot == "" {
		in.Template = t.options.Template
	}
	ctx, cancel := whole(ctx)
	defer cancel()
	return t.Sandboxes.Create(ctx, in)
}

func fork(ctx context.Context, parent *client.Sandbox) (*client.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := whole(ctx)
	defer cancel()
	return parent.Fork(ctx, api.Fork{})
}

func (t *target) snapshot(ctx context.Context, sb *client.Sandbox) (api.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return api.Snapshot{}, err
	}
	t.keeps = true
	ctx, cancel := whole(ctx)
	defer cancel()
	return sb.Snapshot(ctx, api.CreateSnapshot{Name: "bench-" + api.NewID(), Metadata: t.labels()})
}

// cleanUp deletes all that the run has made so far, also after an interrupt.
func (t *target) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	var boxes []*client.Sandbox
	for sb, err := range t.Sandboxes.List(ctx, client.ListOptions{Metadata: t.labels()}) {
		if err != nil {
			return fmt.Errorf("bench: find the sandboxes to delete: %w", err)
		}
		boxes = append(boxes, sb)
	}
	return errors.Join(deleteAll(ctx, boxes), t.deleteSnapshots(ctx))
}

func (t *target) deleteSnapshots(ctx context.Context) error {
	if !t.keeps {
		return nil
	}
	var mine []string
	for s, err := range t.Snapshots.List(ctx, client.SnapshotListOptions{Kind: api.KindSnapshot}) {
		if err != nil {
			return fmt.Errorf("bench: find the snapshots to delete: %w", err)
		}
		if s.Metadata[runLabel] == t.run {
			mine = append(mine, s.ID)
		}
	}
	var failed error
	for _, id := range mine {
		err := t.Snapshots.Delete(ctx, id)
		for api.CodeOf(err) == api.CodeSnapshotInUse && pause(ctx, rest) { // by a sandbox that was deleted just now
			err = t.Snapshots.Delete(ctx, id)
		}
		if err != nil && !client.IsNotFound(err) {
			failed = errors.Join(failed, fmt.Errorf("bench: delete snapshot %s: %w", id, err))
		}
	}
	return failed
}

func deleteAll(ctx context.Context, boxes []*client.Sandbox) error {
	var wg sync.WaitGroup
	gate := make(chan struct{}, 8)
	failed := make([]error, len(boxes))
	for i, sb := range boxes {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			if err := sb.Delete(ctx); err != nil && !client.IsNotFound(err) {
				failed[i] = fmt.Errorf("bench: delete sandbox %s: %w", sb.ID, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// local reports whether the server is on this machine, so that its processes can
// be looked at.
func (t *target) local() bool {
	u, err := url.Parse(t.BaseURL())
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// echo runs a command and checks that its output came back.
func echo(ctx context.Context, sb *client.Sandbox) error { return answers(ctx, sb, "echo hello") }

// answers runs a line that ends with `echo hello` and checks that it did.
func answers(ctx context.Context, sb *client.Sandbox, line string) error {
	res, err := sb.Shell(ctx, line)
	if err != nil {
		return err
	}
	if strings.TrimSpace(res.Stdout) != "hello" {
		return fmt.Errorf("%q answered %q, exit %d, %q", line, res.Stdout, res.ExitCode, res.Stderr)
	}
	return nil
}
