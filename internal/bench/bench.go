// Package bench measures a PandaStack server through its public API, and what
// stands beside it on the same machine. It prints tables and writes JSON; it
// never judges: aims are printed beside the figures, and a run that is slow
// succeeds.
//
// A scenario is measured in rounds. With a second server the rounds of both take
// turns, so that what else the machine or the network does meanwhile falls on
// both alike. All that a run makes carries a label of that run, and is deleted
// when the scenario or the run ends, also when the run is interrupted; after a
// SIGKILL sandboxes go by their time to live and snapshots stay, under names that
// begin with "bench-".
package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// Options choose what to measure and where.
type Options struct {
	Client    *client.Client
	Compare   *client.Client // a second server to measure beside it; nil for none
	Template  string
	Count     int      // samples of each latency; costly scenarios take fewer
	Density   int      // sandboxes at once
	Scenarios []string // empty: all
	// Progress is told what is measured and how much of the run is done, of 1.
	Progress func(step string, fraction float64)
}

// Report is what a run writes.
type Report struct {
	Time time.Time `json:"time"`
	Side
	Machine Machine `json:"machine"` // from which it was measured
	Compare *Side   `json:"compare,omitempty"`
}

// Side is one server and its figures.
type Side struct {
	Address string   `json:"address,omitempty"`
	Server  string   `json:"server"`
	Runtime string   `json:"runtime,omitempty"`
	Results []Result `json:"results"`
}

// scenarios is everything that can be measured, in the order of a run.
func scenarios() []scenario {
	return []scenario{
		{"sequential", "create to first output, one after another", openSequential},
		{"staggered", "the same, started 200 ms apart", openStaggered},
		{"burst", "the same, all at once", openBurst},
		{"rate", "the same, 20 a second for 10 seconds", openRate},
		{"exec", "a command in a sandbox that is warm", openExec},
		{"code", "1+1 in code contexts that are warm", openCode},
		{"terminal", "the echo of a key in a terminal", openTerminal},
		{"streams", "what 50 open streams cost the server", openStreams},
		{"files", "file up and down, 64 MiB, beside what a program inside does", openFiles},
		{"network", "slots, changes of rules, and bytes between linked sandboxes", openNetwork},
		{"previews", "requests to a server in a sandbox through its preview, and beside it", openPreviews},
		{"fork", "fork an idle Python process, to first output in the child", openFork},
		{"fork-pause", "how long parents of 5 and 64 MB stand still for a fork, seen from inside", openForkPause},
		{"fork-tree", "fork 10 children at once, until all answer", openForkTree},
		{"hibernate", "put 64 MB of changed memory to sleep, and wake it", openHibernate},
		{"wake", "a command in a hibernated sandbox, which wakes it", openWake},
		{"restore", "create from a snapshot of 256 MB, to first output", openRestore},
		{"rollback", "checkpoint, and roll back in place", openRollback},
		{"stored", "what a child that changed 3 MB adds to the store", openStored},
		{"density", "many sandboxes at once, all answering, and their memory", openDensity},
	}
}

// Names lists the scenarios with what each measures.
func Names() [][2]string {
	var out [][2]string
	for _, s := range scenarios() {
		out = append(out, [2]string{s.name, s.about})
	}
	return out
}

// Run measures and reports. A scenario that fails is in the report with its
// error; the others go on.
func Run(ctx context.Context, o Options) (*Report, error) {
	report := &Report{Time: time.Now().UTC(), Machine: ThisMachine()} // before the load that this makes
	first, err := meet(ctx, &o, o.Client)
	if err != nil {
		return nil, err
	}
	targets := []*target{first}
	if o.Compare != nil {
		second, err := meet(ctx, &o, o.Compare)
		if err != nil {
			return nil, err
		}
		targets = append(targets, second)
		report.Compare = &second.side
	}
	err = measureAll(ctx, &o, targets)
	report.Side = first.side
	return report, err
}

// measureAll runs the scenarios that were chosen.
func measureAll(ctx context.Context, o *Options, targets []*target) error {
	chosen := slices.DeleteFunc(scenarios(), func(s scenario) bool {
		return len(o.Scenarios) > 0 && !slices.Contains(o.Scenarios, s.name)
	})
	for i, s := range chosen {
		progress := func(part float64) {
			o.Progress(s.name+": "+s.about, (float64(i)+part)/float64(len(chosen)))
		}
		measure(ctx, s, targets, progress)
		if ctx.Err() != nil {
			o.Progress("interrupted; deleting what was made", 1)
		}
		for _, t := range targets {
			if err := t.cleanUp(ctx); err != nil {
				return err
			}
		}
		if !pause(ctx, settle) {
			return ctx.Err()
		}
	}
	return nil
}

// settle is the rest between two scenarios, in which a server ends what the
// deletes before it left to do.
const settle = time.Second

// meet asks a server who it is.
func meet(ctx context.Context, o *Options, c *client.Client) (*target, error) {
	v, err := c.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", c.BaseURL(), err)
	}
	return &target{
		Client: c, options: o, run: api.NewID(),
		side: Side{Address: c.BaseURL(), Server: v.Version, Runtime: v.Runtime},
	}, nil
}
