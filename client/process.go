package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"syscall"

	"github.com/pandastack/pandastack/api"
)

// Processes lists the processes that were started through the API and run, with
// all also those that ended within the last hour.
func (s *Sandbox) Processes(ctx context.Context, all bool) ([]api.Process, error) {
	r := request{method: http.MethodGet, path: s.path("processes")}
	if all {
		r.query = url.Values{"all": {"true"}}
	}
	var out api.ProcessList
	err := s.c.call(ctx, r, &out)
	return out.Processes, err
}

// Proc is a handle on a process that runs in a sandbox, whoever started it. It
// goes on when its client leaves.
type Proc struct {
	Name    string // its number, or its tag
	sandbox *Sandbox
}

// Proc gives a handle on a process by its number. It asks the server nothing.
func (s *Sandbox) Proc(pid int) *Proc { return s.Tagged(strconv.Itoa(pid)) }

// Tagged gives a handle on the last process that was started with a tag.
func (s *Sandbox) Tagged(tag string) *Proc { return &Proc{Name: tag, sandbox: s} }

func (p *Proc) path(more ...string) []string {
	return p.sandbox.path(append([]string{"processes", p.Name}, more...)...)
}

// Follow gives what the process does from now on: its output as it comes, as
// slowly as the caller takes it, and its exit. With replay the last of the output
// so far comes first, and a process that ended within the last hour is found too.
// It ends after the first error.
func (p *Proc) Follow(ctx context.Context, replay bool) iter.Seq2[api.ExecEvent, error] {
	q := url.Values{"replay": {strconv.FormatBool(replay)}}
	return follow[api.ExecEvent](ctx, p.sandbox.c, request{method: http.MethodGet, path: p.path(), query: q})
}

// Wait follows the process to its end.
func (p *Proc) Wait(ctx context.Context) (*api.ExecResult, error) {
	for ev, err := range p.Follow(ctx, true) {
		if err != nil {
			return nil, err
		}
		if ev.Type == "exit" && ev.Result != nil {
			return ev.Result, nil
		}
	}
	return nil, api.Errorf(api.CodeServerUnreachable, "the server ended the stream before the process ended")
}

// Feed copies r to the process's input, as fast as it reads it, and returns when
// its pipe has taken all. With end it is given end of file after that.
func (p *Proc) Feed(ctx context.Context, r io.Reader, end bool) error {
	in := request{method: http.MethodPost, path: p.path("stdin"), body: r}
	if end {
		in.query = url.Values{"close": {"true"}}
	}
	return p.sandbox.c.call(ctx, in, nil)
}

// CloseStdin gives the process end of file.
func (p *Proc) CloseStdin(ctx context.Context) error {
	return p.sandbox.c.call(ctx, request{method: http.MethodPost, path: p.path("stdin", "close")}, nil)
}

// Signal sends a signal to the process, with tree also to all that descends from
// it.
func (p *Proc) Signal(ctx context.Context, sig syscall.Signal, tree bool) error {
	in := api.SendSignal{Signal: signalName(sig), Tree: tree}
	return p.sandbox.c.call(ctx, request{method: http.MethodPost, path: p.path("signal"), in: in}, nil)
}

// Kill ends the process and all that descends from it.
func (p *Proc) Kill(ctx context.Context) error {
	return p.sandbox.c.call(ctx, request{method: http.MethodDelete, path: p.path()}, nil)
}

// signalName is a signal as the API takes it. Numbers are those of Linux only for
// the signals that have the same one everywhere; the others go by name.
func signalName(sig syscall.Signal) api.SignalName {
	switch sig {
	case syscall.SIGUSR1:
		return "SIGUSR1"
	case syscall.SIGUSR2:
		return "SIGUSR2"
	case syscall.SIGCHLD:
		return "SIGCHLD"
	case syscall.SIGCONT:
		return "SIGCONT"
	case syscall.SIGSTOP:
		return "SIGSTOP"
	case syscall.SIGTSTP:
		return "SIGTSTP"
	case syscall.SIGBUS:
		return "SIGBUS"
	}
	return api.SignalName(strconv.Itoa(int(sig)))
}

// MetricsSeries says what the sandbox used over the last while, as text such as
// 15m and 1h; empty ones are the server's defaults. It does not wake the sandbox.
func (s *Sandbox) MetricsSeries(ctx context.Context, span, step string) (api.MetricsSeries, error) {
	q := url.Values{}
	if span != "" {
		q.Set("range", span)
	}
	if step != "" {
		q.Set("step", step)
	}
	var out api.MetricsSeries
	err := s.c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "metrics", "sandbox", s.ID}, query: q}, &out)
	return out, err
}
