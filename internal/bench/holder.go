package bench

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

//go:embed holder.py
var holderProgram []byte

const (
	holderPath  = "/home/user/holder.py"
	holderReady = "/home/user/holder.ready"
)

// holder is a Python process in a sandbox that holds memory.
type holder struct {
	*client.Sandbox
	pid int
}

// hold creates a sandbox with a Python process that holds so many MiB of random
// bytes and is otherwise idle. With watch set it tells
// there for how long it stood still.
func (t *target) hold(ctx context.Context, megabytes int, watch *gaps) (*holder, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	if err := sb.WriteFile(ctx, holderPath, holderProgram); err != nil {
		return nil, err
	}
	h := &holder{Sandbox: sb}
	line := fmt.Sprintf("exec python3 %s %d %s", holderPath, megabytes, holderReady)
	if watch != nil {
		err = h.startWatching(ctx, line+" watch", watch)
	} else {
		err = h.startIdle(ctx, line)
	}
	if err != nil {
		return nil, err
	}
	return h, h.awaitReady(ctx, "")
}

// startIdle starts the process so that nothing outside is connected to it.
func (h *holder) startIdle(ctx context.Context, line string) error {
	res, err := h.Shell(ctx, "("+line+") </dev/null >/dev/null 2>&1 & echo $!")
	if err != nil {
		return err
	}
	if h.pid, err = strconv.Atoi(strings.TrimSpace(res.Stdout)); err != nil {
		return fmt.Errorf("no process was started: %q, %q", res.Stdout, res.Stderr)
	}
	return nil
}

// startWatching starts the process with its output connected; it ends with the
// sandbox.
func (h *holder) startWatching(ctx context.Context, line string, watch *gaps) error {
	cmd := h.ShellCommand(context.WithoutCancel(ctx), line)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	h.pid = cmd.Process.PID
	go func() {
		watch.read(pipe)
		pipe.Close()
		cmd.Wait() // its end is that of the sandbox, which says nothing
	}()
	return nil
}

// awaitReady waits until every page was written, after a first command.
func (h *holder) awaitReady(ctx context.Context, first string) error {
	return answers(ctx, h.Sandbox, first+"while ! test -e "+holderReady+"; do sleep 0.02; done; echo hello")
}

// change writes every page of the memory anew and waits for that.
func (h *holder) change(ctx context.Context) error {
	return h.awaitReady(ctx, fmt.Sprintf("rm -f %s; kill -USR1 %d; ", holderReady, h.pid))
}

// alive is a line whose output says that the process is there: a child that has
// lost it must not count as one that answers.
func (h *holder) alive() string { return fmt.Sprintf("kill -0 %d && echo hello", h.pid) }

// gaps collects how long a process that watches the clock stood still.
type gaps struct {
	mu      sync.Mutex
	longest time.Duration
}

// leastGap is the shortest that the process tells of.
const leastGap = 2 * time.Millisecond

func (g *gaps) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		ms, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return
		}
		g.mu.Lock()
		g.longest = max(g.longest, time.Duration(ms*float64(time.Millisecond)))
		g.mu.Unlock()
	}
}

// since gives the longest gap that was told of since the last call, and at least
// leastGap, below which nothing is told.
func (g *gaps) since() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := max(g.longest, leastGap)
	g.longest = 0
	return longest
}
