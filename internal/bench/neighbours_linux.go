package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// neighbour is one command that is measured.
type neighbour struct {
	what string
	// prepare makes what once needs; nil when that is nothing. Its error, or
	// that of a sample that does not count, takes the neighbour out of the run.
	prepare func(context.Context) error
	once    func(context.Context, *samples) (time.Duration, error)

	took samples
	out  bool
}

// Neighbours measures, on the root filesystem in o.Image, what else starts a
// command in a container on this machine: runc, podman and the stock runsc, and
// a plain process for scale. Each Result has Scenario "neighbour" and is in
// milliseconds.
//
// A program that is not installed gives a Result that says which package has
// it. An error means that nothing could be measured, or that ctx ended. Either
// way no process, mount, cgroup or file remains; after a SIGKILL of this process
// at most an empty directory and empty cgroups do, and the next run removes the
// cgroups. Needs root.
func Neighbours(ctx context.Context, o NeighbourOptions) ([]Result, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("bench: containers to compare with need root")
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	var results []Result
	var err error
	onOwnThread(func() {
		var r *room
		if r, err = enterRoom(ctx, o.WorkDir, o.Image); err != nil {
			return
		}
		results, err = measureNeighbours(r.ctx, o, neighboursIn(r, o.Runsc))
		err = errors.Join(err, r.leave())
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return results, err
}

// measureNeighbours takes one sample of each neighbour in turn, so that what
// else the machine does meanwhile falls on all of them alike.
func measureNeighbours(ctx context.Context, o NeighbourOptions, all []*neighbour) ([]Result, error) {
	for _, n := range all {
		if n.prepare != nil {
			n.drop(o.Progress, n.prepare(ctx))
		}
	}
	for i := range o.N + warmUps {
		if i%10 == warmUps {
			fmt.Fprintf(o.Progress, "bench: neighbour, round %d of %d\n", i-warmUps+1, o.N)
		}
		for _, n := range all {
			if n.out {
				continue
			}
			n.sample(ctx, o.Progress, i < warmUps)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	var results []Result
	for _, n := range all {
		results = append(results, n.took.result(neighbourScenario, n.what, "ms"))
	}
	return results, nil
}

func (n *neighbour) sample(ctx context.Context, progress io.Writer, warmUp bool) {
	into := &n.took
	if warmUp {
		into = new(samples)
	}
	d, err := n.once(ctx, into)
	switch {
	case err != nil && warmUp:
		n.drop(progress, err)
	case err != nil:
		n.took.fail(err)
	default:
		into.add(milliseconds(d))
	}
}

// drop takes a neighbour that cannot be measured out of the run; err stays in
// its result.
func (n *neighbour) drop(progress io.Writer, err error) {
	if err == nil {
		return
	}
	n.took.fail(err)
	n.out = true
	fmt.Fprintf(progress, "bench: neighbour: no %q: %v\n", n.what, err)
}

// program finds an installed program, or says which Debian package has it.
func program(name, debianPackage string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed (apt-get install %s)", name, debianPackage)
	}
	return path, nil
}
