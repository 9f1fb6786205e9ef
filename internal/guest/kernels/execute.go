package kernels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Execution is one piece of code to run.
type Execution struct {
	Code    string
	Env     map[string]string // for this code only
	Timeout time.Duration     // 0 is none
	// Emit takes events, each a line of JSON with its newline. An error of it
	// is the client's leaving.
	Emit func(line []byte) error
}

// Outcome is what the events of an execution do not say.
type Outcome struct {
	Count    int // number of this execution in its kernel
	TimedOut bool
}

// errLeft is the end of an execution whose client is gone.
var errLeft = errors.New("the client has left")

// Execute runs code and emits its events, the number of the execution first; the
// end is the caller's to tell. A kernel that ends meanwhile is an error event.
func (x *Context) Execute(ctx context.Context, e Execution) (Outcome, error) {
	s := &session{x: x, Execution: e, beat: time.NewTimer(keepalive)}
	defer s.beat.Stop()
	if err := s.await(ctx, x.turn); err != nil {
		return Outcome{}, err
	}
	defer func() { x.turn <- struct{}{} }()
	k, err := s.kernel(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if k == nil {
		return s.outcome, nil // it did not start, and the client was told
	}
	return s.outcome, s.run(ctx, k)
}

// session is one execution under way.
type session struct {
	Execution
	x       *Context
	beat    *time.Timer // of silence
	outcome Outcome
}

// emit sends a line and starts the time of silence anew.
func (s *session) emit(line []byte) error {
	s.beat.Reset(keepalive)
	return s.Emit(line)
}

var keepaliveLine = []byte(`{"type":"keepalive"}` + "\n")

// await waits for c, and keeps the client's connection alive.
func (s *session) await(ctx context.Context, c <-chan struct{}) error {
	for {
		select {
		case <-c:
			if isDone(s.x.gone) {
				return ErrDeleted
			}
			return nil
		case <-s.x.gone:
			return ErrDeleted
		case <-s.beat.C:
			if err := s.emit(keepaliveLine); err != nil {
				return errLeft
			}
		case <-ctx.Done():
			return errLeft
		}
	}
}

// kernel gives a kernel that can run code. It is nil if none could be started,
// after an error event.
func (s *session) kernel(ctx context.Context) (*kernel, error) {
	k, err := s.x.open(ctx)
	if err != nil {
		return nil, s.emit(errorLine("KernelFailed", "the kernel could not be started: "+err.Error()))
	}
	up, stop := make(chan struct{}), time.AfterFunc(startLimit, k.proc.Kill)
	defer stop.Stop()
	go func() {
		defer close(up)
		select {
		case <-k.ready:
		case <-k.ended:
		}
	}()
	if err := s.await(ctx, up); err != nil {
		return nil, err
	}
	if !isDone(k.ready) {
		return nil, s.emit(errorLine("KernelFailed", "the kernel ended while it started: "+k.proc.Status()))
	}
	return k, nil
}

// open gives the kernel of the context, and starts one if there is none. The
// caller has the turn.
func (x *Context) open(ctx context.Context) (*kernel, error) {
	if k := x.current(); k != nil && !isDone(k.ended) && !isDone(k.proc.Done) {
		return k, nil
	}
	globals := merged(x.set.sys.Environ(), x.env)
	env := merged(x.env, x.lang.env)
	p, err := x.set.sys.Start(ctx, Program{
		Path: x.lang.needs[0], Args: x.lang.args(x.set.preload[x.Language]), Env: env, Dir: x.Cwd,
	})
	if err != nil {
		return nil, err
	}
	k := newKernel(p, globals)
	x.mu.Lock()
	x.kernel, x.count = k, 0
	x.mu.Unlock()
	if isDone(x.gone) { // deleted while it started
		p.Kill()
	}
	return k, nil
}

// start makes sure that the context has a kernel that can run code.
func (x *Context) start(ctx context.Context) error {
	s := &session{x: x, beat: time.NewTimer(keepalive), Execution: Execution{Emit: func([]byte) error { return nil }}}
	defer s.beat.Stop()
	if err := s.await(ctx, x.turn); err != nil {
		return err
	}
	defer func() { x.turn <- struct{}{} }()
	k, err := s.kernel(ctx)
	if err == nil && k == nil {
		err = fmt.Errorf("the %s kernel did not start", x.Language)
	}
	return err
}

// run gives the code to the kernel and follows it to its end.
func (s *session) run(ctx context.Context, k *kernel) error {
	s.x.mu.Lock()
	s.x.count++
	s.outcome.Count = s.x.count
	s.x.mu.Unlock()
	left := s.emit([]byte(`{"type":"number_of_executions","execution_count":`+strconv.Itoa(s.outcome.Count)+"}\n")) != nil
	r := &run{events: make(chan event), over: make(chan struct{}), detached: make(chan struct{})}
	changes := k.begin(r, merged(s.x.set.sys.Environ(), s.x.env))
	defer k.finish(r)
	_ = k.proc.Commands.SetWriteDeadline(time.Now().Add(startLimit))
	cmd := command{Code: s.Code, Globals: changes, Env: changesOf(nil, s.Env)}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := k.proc.Commands.Write(s.x.lang.encode(cmd)); err != nil {
			k.proc.Kill() // it does not read; it is no use any more
		}
		_ = k.proc.Commands.SetWriteDeadline(time.Time{}) // fails only on a closed file
	}()
	err := s.follow(ctx, k, r, left)
	<-sent
	return err
}

// follow emits the events of the execution until it is over.
func (s *session) follow(ctx context.Context, k *kernel, r *run, left bool) error {
	var deadline <-chan time.Time
	if s.Timeout > 0 {
		t := time.NewTimer(s.Timeout)
		defer t.Stop()
		deadline = t.C
	}
	var again <-chan time.Time // of an interrupt
	tries := 0
	interrupt := func() {
		if tries++; tries > interrupts {
			k.proc.Kill()
			return
		}
		k.proc.Interrupt()
		again = time.After(patience)
	}
	var alone <-chan time.Time // since the client has left
	quiet := func() {
		if left = true; alone == nil {
			alone = time.After(restored)
		}
	}
	emit := func(line []byte) {
		if !left && s.emit(line) != nil {
			quiet()
		}
	}
	if left {
		quiet()
	}
	gone := ctx.Done()
	for {
		select {
		case e := <-r.events:
			if e.kind == "done" {
				return leftError(left)
			}
			emit(e.line)
		case <-k.ended:
			emit(errorLine("KernelDied", "the kernel ended: "+k.reason()+"; the next code starts another, without what was in this one"))
			return leftError(left)
		case <-s.beat.C:
			emit(keepaliveLine)
		case <-deadline:
			s.outcome.TimedOut = true
			interrupt()
		case <-again:
			interrupt()
		case <-alone:
			if !isDone(r.detached) && tries == 0 {
				interrupt()
			}
		case <-gone:
			gone = nil
			quiet()
		}
	}
}

func leftError(left bool) error {
	if left {
		return errLeft
	}
	return nil
}

// reason says how an ended kernel ended.
func (k *kernel) reason() string {
	if k.broken != nil && !errors.Is(k.broken, os.ErrClosed) {
		return k.broken.Error()
	}
	return k.proc.Status()
}

func errorLine(name, value string) []byte {
	data, err := json.Marshal(struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}{"error", name, value, name + ": " + value})
	if err != nil {
		panic("kernels: an error is plain data: " + err.Error())
	}
	return append(data, '\n')
}
