//go:build linux

package guestd

import (
	"context"
	"os"
	"syscall"
)

// reaper owns every wait status of this process: of what it started, and, as
// first process of the machine, of every orphan.
type reaper struct {
	turn    chan struct{} // holds one token: the right to fork, and to look at waiting
	waiting map[int]func(syscall.WaitStatus)
}

func newReaper() reaper {
	r := reaper{turn: make(chan struct{}, 1), waiting: map[int]func(syscall.WaitStatus){}}
	r.turn <- struct{}{}
	return r
}

// start forks and remembers who wants the status. The turn spans both, so that
// a child which ends at once is not taken for an orphan. It is waited for until
// ctx ends: whoever has it waits for a child that may not run on.
func (r *reaper) start(ctx context.Context, fork func() (int, error), exited func(syscall.WaitStatus)) error {
	select {
	case <-r.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { r.turn <- struct{}{} }()
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
		<-r.turn
		exited := r.waiting[pid]
		delete(r.waiting, pid)
		r.turn <- struct{}{}
		if exited != nil {
			exited(ws)
		}
	}
}
