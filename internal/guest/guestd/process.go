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

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// How long, and for how many processes, the end event is kept for a client that
// connects late.
const (
	keepEnded    = 30 * time.Second
	keepEndedMax = 256
)

// process is a program that a client started, until its end event is forgotten.
type process struct {
	serial uint64
	pid    int
	config *pb.ProcessConfig
	tag    *string
	table  *table
	stdin  *input   // nil for a terminal
	pty    *os.File // nil without a terminal
	outs   []*os.File

	once  sync.Once     // of cutOutput
	parts atomic.Int32  // pumps and the exit still to come
	done  chan struct{} // closed when all output was delivered and the status is known

	mu       sync.Mutex
	subs     []*subscriber // replaced, never changed in place
	gone     bool          // the program itself has ended; its pid may be another's
	status   syscall.WaitStatus
	cut      bool // do not wait for what else holds the output open
	timedOut bool
	timer    *time.Timer // of the lifetime
	forget   *time.Timer
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
	p.forget = time.AfterFunc(keepEnded, func() { t.drop(p) })
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

// find gives the process a selector names; with several of one tag the last.
func (t *table) find(sel *pb.ProcessSelector, ended bool) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *process
	switch v := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		if found = t.byPID[int(v.Pid)]; found == nil {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("process with pid "+itoa(int(v.Pid))+" not found"))
		}
	case *pb.ProcessSelector_Tag:
		for _, p := range t.byPID {
			if p.tag != nil && *p.tag == v.Tag && (ended || !p.over()) && (found == nil || p.serial > found.serial) {
				found = p
			}
		}
		if found == nil {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("process with tag '"+printable(v.Tag, 64)+"' not found"))
		}
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a process selector needs a pid or a tag"))
	}
	if !ended && found.over() {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the process has ended"))
	}
	return found, nil
}

func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return p.parts.Load() == 0
	}
}
