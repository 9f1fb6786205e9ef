package gvisor

import (
	"context"
	"os"
	"path/filepath"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/gvisor/pages"
)

// load is the part of a restore that goes on after Start: the sentry reads the
// guest's memory, from files it holds or through this process.
type load struct {
	session *pages.Session
	mark    string // file that exists until the load is done; empty if the sentry needs nobody
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // valid when done is closed
}

// watch waits in the background until the sentry has all its memory.
func (l *load) watch(ctx context.Context, s *sentry) {
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(l.done)
		defer l.session.Close()
		l.err = l.finish(ctx, s)
	}()
}

func (l *load) finish(ctx context.Context, s *sentry) error {
	err := call(ctx, s.socket, boot.ContMgrWaitRestore, nil, nil)
	switch lost := l.session.Err(); {
	case lost != nil:
		return lostError(lost)
	case err != nil:
		return api.Wrap(api.CodeSandboxDied, err, "the sandbox ended before its memory was loaded")
	case l.mark == "":
		return nil
	}
	return os.Remove(l.mark)
}

// stop ends the load of a machine that ends.
func (l *load) stop() {
	if l != nil {
		l.session.Close()
		l.cancel()
		<-l.done
	}
}

// lost is why the machine cannot have its memory, nil if it can or may yet.
func (l *load) lost() error {
	if l == nil {
		return nil
	}
	return l.session.Err()
}

// Loaded implements driver.Machine.
func (m *machine) Loaded(ctx context.Context) error {
	if m.load == nil {
		return nil
	}
	select {
	case <-m.load.done:
		return m.load.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleLoading decides about a machine that was attached and whose starter fed it
// its memory. Without the starter the sentry's next read fails and it ends; if it
// lacked nothing any more, all is well.
func (m *machine) settleLoading(ctx context.Context) error {
	mark := filepath.Join(m.s.dir, loadingFile)
	if !exists(mark) {
		return nil
	}
	err := m.whileAwake(ctx, func() error { return call(ctx, m.s.socket, boot.ContMgrWaitRestore, nil, nil) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return os.Remove(mark)
	}
	m.release(context.WithoutCancel(ctx))
	return api.Wrap(api.CodeSandboxDied, err, "the sandbox ended with the process that was reading its memory from the snapshot")
}

// settleMemory takes back the memory that a process which died in withMemory had
// given.
func (m *machine) settleMemory() {
	if cg, err := m.cgroup(); err == nil && memoryInUse(cg) < m.s.limits.MemoryBytes {
		_ = setMemoryLimit(cg, m.s.limits.MemoryBytes) // a machine that is used is better than a limit that is right
	}
}
