//go:build linux

package guestd

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/pandastack/pandastack/api"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// How long, and for how many processes, the end and the last output are kept for
// a client that connects late. The protocol's Connect knows an ended process for
// keepEnded only; one that asks for a replay knows it for as long as it is kept.
const (
	keepEnded    = 30 * time.Second
	keepReplay   = time.Hour
	keepEndedMax = 256
)

// process is a program that a client started, until its end event is forgotten.
type process struct {
	serial uint64
	pid    int
	tag    *string
	table  *table
	info   api.Process // as it was started
	stdin  *input
	pty    *os.File // nil without a terminal
	outs   []*os.File

	once  sync.Once     // of cutOutput
	parts atomic.Int32  // pumps and the exit still to come
	done  chan struct{} // closed when all output was delivered and the status is known

	mu       sync.Mutex
	config   *pb.ProcessConfig // until it has ended
	subs     []*subscriber     // replaced, never changed in place
	tail     tail
	gone     bool // the program itself has ended; its pid may be another's
	status   syscall.WaitStatus
	cut      bool // do not wait for what else holds the output open
	timedOut bool
	timer    *time.Timer // of the lifetime

	// Of the table, under its lock.
	endedAt time.Time
	forget  *time.Timer
}

// exited takes the wait status. It runs on the reaper and never blocks.
func (p *process) exited(ws syscall.WaitStatus) {
	p.mu.Lock()
	p.gone, p.status = true, ws
	// A terminal is over with its session leader, whoever else has it open.
	cut := p.cut || p.pty != nil
	p.mu.Unlock()
	if cut {
		p.cutOutput()
	}
	p.part()
}

// part ends one of the parts; the last one ends the process.
func (p *process) part() {
	if p.parts.Add(-1) != 0 {
		return
	}
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if p.stdin != nil {
		p.stdin.close()
	}
	if p.pty != nil {
		p.pty.Close()
	}
	p.table.ended(p)
	close(p.done)
}

// cutOutput makes the pumps take what is there and stop.
func (p *process) cutOutput() {
	p.once.Do(func() {
		for _, f := range p.outs {
			_ = f.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed file, whose pump has ended
		}
	})
}

// signal sends a signal to the program, not to its children. The two that mean
// to end it also end the wait for children that hold its output open.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		p.cut = true
	}
	if p.gone {
		if p.cut {
			p.cutOutput()
		}
		return nil
	}
	return syscall.Kill(p.pid, sig)
}

// signalTree sends a signal to the program and all that descends from it.
func (p *process) signalTree(sig syscall.Signal) {
	if sig == syscall.SIGKILL {
		p.killTree()
		return
	}
	for _, pid := range members(p.pid, map[int]bool{p.pid: true}) {
		if pid != p.pid {
			_ = syscall.Kill(pid, sig) // it may have ended by itself
		}
	}
	_ = p.signal(sig) // as above
}

// killTree kills the program and all that descends from it.
func (p *process) killTree() {
	p.mu.Lock()
	p.cut = true
	gone := p.gone
	p.mu.Unlock()
	killTree(p.pid)
	if gone {
		p.cutOutput()
	}
}

// expire ends a process whose lifetime is over.
func (p *process) expire() {
	p.mu.Lock()
	p.timedOut = true
	p.mu.Unlock()
	p.killTree()
}

// end is the terminal event. Only after done.
func (p *process) end() *pb.ProcessEvent_EndEvent {
	ev := &pb.ProcessEvent_EndEvent{ExitCode: -1, Status: statusText(p.status)}
	if p.status.Exited() {
		ev.ExitCode, ev.Exited = int32(p.status.ExitStatus()), true
	}
	if ev.ExitCode != 0 {
		ev.Error = &ev.Status
	}
	return ev
}

// statusText says how a process ended.
func statusText(ws syscall.WaitStatus) string {
	switch {
	case ws.Exited():
		return "exit status " + itoa(ws.ExitStatus())
	case ws.Signaled() && ws.CoreDump():
		return "signal: " + ws.Signal().String() + " (core dumped)"
	case ws.Signaled():
		return "signal: " + ws.Signal().String()
	}
	return ""
}

// table is all processes by pid.
type table struct {
	tails budget
	mu    sync.Mutex
	byPID map[int]*process
	old   []*process // ended, oldest first
}

func (t *table) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byPID[p.pid] = p
}

// ended keeps the process for late clients, for a while.
func (t *table) ended(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.mu.Lock()
	p.config = nil // it can be large
	p.mu.Unlock()
	p.endedAt = time.Now()
	p.forget = time.AfterFunc(keepReplay, func() { t.drop(p) })
	t.old = append(t.old, p)
	for len(t.old) > keepEndedMax {
		t.remove(t.old[0])
	}
}

func (t *table) drop(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(p)
}

// remove is called with the lock held.
func (t *table) remove(p *process) {
	p.forget.Stop()
	p.mu.Lock()
	p.tail.release(&t.tails)
	p.mu.Unlock()
	t.old = slices.DeleteFunc(t.old, func(q *process) bool { return q == p })
	if t.byPID[p.pid] == p { // the pid may be another's by now
		delete(t.byPID, p.pid)
	}
}

// running lists the processes that have not ended, in order of start.
func (t *table) running() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*process
	for _, p := range t.byPID {
		if !p.over() {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *process) int { return int(a.serial) - int(b.serial) })
	return out
}

// find gives the process a selector names; with several of one tag the last. It
// may have ended, but not longer ago than ended.
func (t *table) find(sel *pb.ProcessSelector, ended time.Duration) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *process
	switch v := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		if found = t.byPID[int(v.Pid)]; found == nil || ended > 0 && !found.known(ended) {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("process with pid "+itoa(int(v.Pid))+" not found"))
		}
	case *pb.ProcessSelector_Tag:
		for _, p := range t.byPID {
			if p.tag != nil && *p.tag == v.Tag && p.known(ended) && (found == nil || p.serial > found.serial) {
				found = p
			}
		}
		if found == nil {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("process with tag '"+printable(v.Tag, 64)+"' not found"))
		}
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a process selector needs a pid or a tag"))
	}
	if ended == 0 && found.over() {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the process has ended"))
	}
	return found, nil
}

// known reports whether a process runs, or ended no longer ago than ended. It is
// called with the table's lock held.
func (p *process) known(ended time.Duration) bool {
	return !p.over() || ended > 0 && (p.endedAt.IsZero() || time.Since(p.endedAt) <= ended)
}

func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return p.parts.Load() == 0
	}
}
