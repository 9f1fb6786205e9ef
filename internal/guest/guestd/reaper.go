//go:build linux

package guestd

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// reaper owns every wait status of this process: of what it started, and, as
// first process of the machine, of every orphan.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]func(syscall.WaitStatus)
}

// start forks and remembers who wants the status. The lock spans both, so that
// a child which ends at once is not taken for an orphan.
func (r *reaper) start(fork func() (int, error), exited func(syscall.WaitStatus)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return err
	}
	r.waiting[pid] = exited
	return nil
}

// run reaps at every SIGCHLD until ctx ends. Many signals may be one: each time
// all that have ended are taken.
func (r *reaper) run(ctx context.Context, sigchld <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-sigchld:
			r.reap()
		}
	}
}

func (r *reaper) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		exited := r.waiting[pid]
		delete(r.waiting, pid)
		r.mu.Unlock()
		if exited != nil {
			exited(ws)
		}
	}
}
