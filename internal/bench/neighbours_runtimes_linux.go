package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// echoHello is what a PandaStack sandbox is asked for too: a shell and its
// first output.
var echoHello = []string{"/bin/sh", "-c", "echo hello"}

// idle is what a container runs that waits for others to come in.
var idle = []string{"/bin/sleep", "infinity"}

// neighboursIn lists what is measured in a room, in the order of the report.
func neighboursIn(r *room, runscPath string) []*neighbour {
	podman := &podman{room: r}
	runc := &runtimeCLI{room: r, name: "runc", find: func() (string, error) { return program("runc", "runc") }}
	runsc := &runtimeCLI{
		room: r, name: "runsc", flags: []string{"--network=none", "--overlay2=root:memory"},
		find: func() (string, error) {
			path, err := exec.LookPath(runscPath)
			if err != nil {
				return "", fmt.Errorf("no stock runsc at %q (scripts/bench.sh builds one)", runscPath)
			}
			return path, nil
		},
	}
	return []*neighbour{
		{what: "process: fork and exec of true", once: native},
		{what: "runc run, to first output", prepare: runc.bundled("run", false, echoHello), once: runc.runOnce},
		{what: "podman run, to first output", prepare: podman.prepare, once: podman.runOnce},
		{what: "runsc run, to first output", prepare: runsc.bundled("run", false, echoHello), once: runsc.runOnce},
		{what: "runsc create+start+exec, to first output", prepare: runsc.bundled("cse", false, idle), once: runsc.createStartExec("cse")},
		{what: "runsc create+start+exec, EROFS root, to first output", prepare: runsc.bundled("erofs", true, idle), once: runsc.createStartExec("erofs")},
		{what: "runc exec of true", prepare: runc.warm, once: runc.execTrue},
		{what: "runsc exec of true", prepare: runsc.warm, once: runsc.execTrue},
	}
}

// native measures the least that starting a command can take, outside the room.
func native(ctx context.Context, _ *samples) (took time.Duration, err error) {
	done := make(chan struct{})
	go func() { // other goroutines run on the host's threads
		defer close(done)
		from := time.Now()
		err = exec.CommandContext(ctx, "/bin/true").Run()
		took = time.Since(from)
	}()
	<-done
	return took, err
}

// runtimeCLI drives a runtime with runc's command line. A container has the name
// of its bundle.
type runtimeCLI struct {
	*room
	name  string
	find  func() (string, error)
	flags []string

	path    string
	bundles map[string]string
}

// args is a command line of the runtime.
func (c *runtimeCLI) args(command ...string) []string {
	return slices.Concat([]string{c.path, "--root", filepath.Join(c.dir, c.name)}, c.flags, command)
}

// bundled prepares a bundle of which containers can be made.
func (c *runtimeCLI) bundled(name string, erofs bool, argv []string) func(context.Context) error {
	return func(context.Context) (err error) {
		if c.path, err = c.find(); err != nil {
			return err
		}
		if c.bundles == nil {
			c.bundles = map[string]string{}
		}
		c.bundles[name], err = c.bundle(c.name+"-"+name, erofs, argv...)
		return err
	}
}

func (c *runtimeCLI) runOnce(context.Context, *samples) (time.Duration, error) {
	d, err := c.hello(c.args("run", "--bundle", c.bundles["run"], "run")...)
	if err != nil {
		c.remove("run") // one that ran to its end is removed by the runtime
	}
	return d, err
}

// createStartExec measures a container that is made and then asked for a
// command, which is what a PandaStack sandbox does.
func (c *runtimeCLI) createStartExec(name string) func(context.Context, *samples) (time.Duration, error) {
	return func(_ context.Context, steps *samples) (time.Duration, error) {
		create, err := c.run(c.args("create", "--bundle", c.bundles[name], name)...)
		if err != nil {
			return 0, errors.Join(err, c.remove(name))
		}
		start, err := c.run(c.args("start", name)...)
		if err != nil {
			return 0, errors.Join(err, c.remove(name))
		}
		first, err := c.hello(c.args(slices.Concat([]string{"exec", name}, echoHello)...)...)
		if err := errors.Join(err, c.remove(name)); err != nil {
			return 0, err
		}
		steps.step("create", milliseconds(create))
		steps.step("start", milliseconds(start))
		steps.step("exec", milliseconds(first))
		return create + start + first, nil
	}
}

// warm prepares a container that runs until the room ends.
func (c *runtimeCLI) warm(ctx context.Context) error {
	if err := c.bundled("warm", false, idle)(ctx); err != nil {
		return err
	}
	if _, err := c.run(c.args("create", "--bundle", c.bundles["warm"], "warm")...); err != nil {
		return err
	}
	_, err := c.run(c.args("start", "warm")...)
	return err
}

func (c *runtimeCLI) execTrue(context.Context, *samples) (time.Duration, error) {
	return c.run(c.args("exec", "warm", "/bin/true")...)
}

func (c *runtimeCLI) remove(name string) error {
	_, err := c.run(c.args("delete", "--force", name)...)
	return err
}

// podman drives podman, which keeps everything it writes in the room.
type podman struct {
	*room
	path string
}

func (p *podman) prepare(context.Context) (err error) {
	p.path, err = program("podman", "podman")
	return err
}

func (p *podman) runOnce(context.Context, *samples) (time.Duration, error) {
	under := func(name string) string { return filepath.Join(p.dir, name) }
	return p.hello(slices.Concat([]string{
		p.path, "--root", under("podman"), "--network-config-dir", under("networks"),
		"--cgroup-manager=cgroupfs", "--events-backend=none",
		"run", "--rm", "--network=none", "--cgroup-parent=/" + p.cgs,
		"--rootfs", p.root + ":O", // it writes to the root, so it gets an overlay
	}, echoHello)...)
}
