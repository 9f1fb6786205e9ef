//go:build linux

package guestd

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// outputGrace is how long the output of a program that has ended is still read
// when something that it started holds it open.
const outputGrace = 2 * time.Second

// spawned is a program that the daemon runs for itself, for one call. Its end
// is the end of all that it started.
type spawned struct {
	stdout, stderr *os.File
	pid            int
	gone           chan struct{} // closed when the program has ended
	status         syscall.WaitStatus
	stop           func() bool
	once           sync.Once
}

// spawn starts a program without input. What is in extra becomes its files from
// 3 on; the caller closes them. When ctx ends it is killed. end must be called.
func (s *Server) spawn(ctx context.Context, l *launch, extra ...uintptr) (*spawned, error) {
	null, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := []int{null}
	defer func() { closeAll(theirs) }()
	p := &spawned{gone: make(chan struct{})}
	for _, out := range []**os.File{&p.stdout, &p.stderr} {
		r, w, err := pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		theirs = append(theirs, w)
		*out = ours(r)
	}
	for _, fd := range theirs {
		l.attr.Files = append(l.attr.Files, uintptr(fd))
	}
	l.attr.Files = append(l.attr.Files, extra...)
	err = s.reaper.start(ctx, func() (int, error) {
		pid, err := syscall.ForkExec(l.path, l.argv, &l.attr)
		p.pid = pid
		return pid, err
	}, func(ws syscall.WaitStatus) {
		p.status = ws
		close(p.gone)
		late := time.Now().Add(outputGrace)
		_ = p.stdout.SetReadDeadline(late) // closed already: nobody reads
		_ = p.stderr.SetReadDeadline(late)
	})
	if err != nil {
		p.close()
		return nil, execError(l.argv[0], err)
	}
	p.stop = context.AfterFunc(ctx, p.kill)
	return p, nil
}

// kill ends the program and what it started.
func (p *spawned) kill() {
	select {
	case <-p.gone:
	default:
		killTree(p.pid)
	}
	_ = p.stdout.SetReadDeadline(time.Unix(1, 0)) // closed already: nobody reads
	_ = p.stderr.SetReadDeadline(time.Unix(1, 0))
}

// end kills what still runs and waits for the program's end.
func (p *spawned) end() {
	p.once.Do(func() {
		p.stop()
		p.kill()
		<-p.gone
		p.close()
	})
}

func (p *spawned) close() {
	for _, f := range []*os.File{p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// discard reads what nobody wants, so that the program does not wait for it.
func (p *spawned) discard(f *os.File) {
	_, _ = io.Copy(io.Discard, f) // its end is all that is waited for
}
