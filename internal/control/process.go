package control

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	startWithin = 30 * time.Second // for the guest to start a process
	killWithin  = 5 * time.Second  // for the guest to take a signal
	// timeoutGrace is how much later than a command's timeout the guest's
	// answer may come. The guest ends the command; one that does not is not
	// waited for.
	timeoutGrace = 5 * time.Second
	exitTimedOut = 124
	stdinChunk   = 64 << 10
)

// running is a command under way for one call.
type running struct {
	ctx     context.Context // of the caller
	client  *guest.Client
	proc    *guest.Process
	req     api.Exec
	started time.Time

	detach   context.CancelFunc // ends the stream of events
	overdue  atomic.Bool        // the guest did not end it in time
	feeding  sync.WaitGroup
	finished bool
}

// run starts a command for one call. It must be closed.
func (s *Service) run(ctx context.Context, who auth.Identity, id string, req api.Exec) (*running, error) {
	cmd, err := parseExec(req)
	if err != nil {
		return nil, err
	}
	client, err := s.Guest(ctx, who, id)
	if err != nil {
		return nil, err
	}
	r := &running{ctx: ctx, client: client, req: req, started: time.Now()}
	r.proc, r.detach, err = startDetached(ctx, client, cmd)
	if err != nil {
		return nil, err
	}
	switch {
	case req.Stdin == nil:
	case req.Background:
		feed(ctx, client, r.proc.PID(), *req.Stdin, req.KeepStdin)
	default:
		// It is fed beside the reading of its output: it may answer before
		// it has read all, and neither side may wait for the other.
		r.feeding.Go(func() { feed(ctx, client, r.proc.PID(), *req.Stdin, req.KeepStdin) })
	}
	return r, nil
}

// startDetached starts a process whose stream ends with ctx, but not before the
// process is known: else one could be started that nobody could kill.
func startDetached(ctx context.Context, client *guest.Client, cmd guest.Command) (*guest.Process, context.CancelFunc, error) {
	stream, detach := context.WithCancel(context.WithoutCancel(ctx))
	slow := time.AfterFunc(startWithin, detach)
	proc, err := client.Start(stream, cmd)
	if !slow.Stop() && err == nil {
		err = api.Errorf(api.CodeTimeout, "the sandbox did not start the command within %s", startWithin)
		kill(ctx, client, proc.PID())
	}
	if err == nil && ctx.Err() != nil {
		err = left(ctx)
		kill(ctx, client, proc.PID())
	}
	if err != nil {
		if proc != nil {
			proc.Close()
		}
		detach()
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, detach)
	return proc, func() { stop(); detach() }, nil
}

// follow hands on events until the command has ended.
func (r *running) follow(emit func(guest.Event) error) (api.ExecResult, error) {
	if r.req.TimeoutSeconds > 0 {
		late := time.AfterFunc(time.Duration(r.req.TimeoutSeconds*float64(time.Second))+timeoutGrace, func() {
			r.overdue.Store(true)
			r.detach()
		})
		defer late.Stop()
	}
	for {
		e, err := r.proc.Recv()
		switch {
		case err != nil && r.timedOut(err):
			r.finished = !r.overdue.Load()
			return api.ExecResult{ExitCode: exitTimedOut, TimedOut: true, PID: r.proc.PID(), DurationMS: r.elapsed()}, nil
		case err != nil && r.ctx.Err() != nil:
			return api.ExecResult{}, left(r.ctx)
		case err != nil:
			return api.ExecResult{}, err
		}
		if err := emit(e); err != nil {
			return api.ExecResult{}, err
		}
		if e.Exit != nil {
			r.finished = true
			return r.result(e.Exit), nil
		}
	}
}

// timedOut reports whether err says that the command ran too long.
func (r *running) timedOut(err error) bool {
	if r.req.TimeoutSeconds == 0 || r.ctx.Err() != nil {
		return false
	}
	return r.overdue.Load() || api.CodeOf(err) == api.CodeTimeout
}

// result is how the command ended, without its output.
func (r *running) result(exit *guest.Exit) api.ExecResult {
	return api.ExecResult{ExitCode: exit.Code, Signal: exit.Signal, PID: r.proc.PID(), DurationMS: r.elapsed()}
}

// close ends the call: the command too, unless it has ended or runs in the
// background.
func (r *running) close() {
	if !r.finished && !r.req.Background {
		kill(r.ctx, r.client, r.proc.PID())
	}
	r.proc.Close()
	r.detach()
	r.feeding.Wait()
}

func (r *running) elapsed() float64 { return milliseconds(time.Since(r.started)) }

// left is the error of a call whose context has ended.
func left(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return api.Wrap(api.CodeTimeout, ctx.Err(), "the time of the request is over")
	}
	return api.Wrap(api.CodeCanceled, ctx.Err(), "the client left")
}

// missingProgram gives the name of the program that could not be run because it
// does not exist.
func missingProgram(req api.Exec, err error) (name string, ok bool) {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeProcessInvalid || e.Details["errno"] != "ENOENT" {
		return "", false
	}
	argv, err := parseCmd(req)
	if err != nil {
		return "", false
	}
	return strings.ToValidUTF8(argv[0], "\uFFFD"), true
}

// kill ends a process and all that descends from it, also when ctx has ended.
func kill(ctx context.Context, client *guest.Client, pid int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWithin)
	defer cancel()
	_ = client.KillTree(ctx, pid) // it may have ended by itself, or the sandbox may be gone
}

// feed writes standard input and closes it unless more may come. A command that
// ends without reading it is nothing to complain about.
func feed(ctx context.Context, client *guest.Client, pid int, text string, more bool) {
	for len(text) > 0 {
		n := min(len(text), stdinChunk)
		if err := client.SendInput(ctx, pid, []byte(text[:n])); err != nil {
			return
		}
		text = text[n:]
	}
	if !more {
		_ = client.CloseStdin(ctx, pid)
	}
}
