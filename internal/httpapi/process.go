package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// ProcessPath is the part of a request that names a process. It is exported for
// the framework, as SandboxPath is.
type ProcessPath struct {
	SandboxPath
	PID string `path:"pid" maxLength:"64" doc:"Number of the process, or its tag" example:"42"`
}

// process gives the sandbox's guest and the number of the process.
func (a *API) process(ctx context.Context, in *ProcessPath) (*guest.Client, int, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, 0, err
	}
	pid, err := client.Find(ctx, in.PID)
	return client, pid, err
}

type listProcessesInput struct {
	SandboxPath
	All bool `query:"all" doc:"Also those that ended within the last hour"`
}

type processesOutput struct{ Body api.ProcessList }

func (a *API) listProcesses(ctx context.Context, in *listProcessesInput) (*processesOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	list, err := client.Processes(ctx, in.All)
	if err != nil {
		return nil, err
	}
	return &processesOutput{api.ProcessList{Processes: list}}, nil
}

type attachInput struct {
	ProcessPath
	Replay bool `query:"replay" default:"true" doc:"Begin with what is kept of the output so far"`
}

// attachProcess follows a process. It goes on when the client leaves.
func (a *API) attachProcess(ctx context.Context, in *attachInput) (*huma.StreamResponse, error) {
	client, pid, err := a.process(ctx, &in.ProcessPath)
	if err != nil {
		return nil, err
	}
	attach := client.Attach
	if in.Replay {
		attach = client.AttachReplay
	}
	proc, err := attach(ctx, pid)
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		defer proc.Close()
		out := newEventStream(w)
		err := out.during(a.KeepAlive, func() error { return sendProcess(out, proc, a.toucher(in.ID)) })
		if err != nil {
			a.endStream(out, w, r, err, func(e *api.Error) any { return api.ExecEvent{Type: "error", Error: e} })
		}
	}), nil
}

// sendProcess sends the events of a process up to its end. Nothing is read ahead
// of what the client takes.
func sendProcess(out *eventStream, proc *guest.Process, touch func()) error {
	if err := out.send("start", 0, api.ExecEvent{Type: "start", PID: proc.PID(), Skipped: proc.Skipped()}); err != nil {
		return err
	}
	for {
		e, err := proc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		ev := api.ExecEvent{Type: "stdout", Data: e.Stdout}
		switch {
		case len(e.PTY) > 0:
			ev.Data = e.PTY
		case len(e.Stderr) > 0:
			ev.Type, ev.Data = "stderr", e.Stderr
		case e.Exit != nil:
			ev = api.ExecEvent{Type: "exit", PID: proc.PID(), Result: &api.ExecResult{ExitCode: e.Exit.Code, Signal: e.Exit.Signal, PID: proc.PID()}}
		}
		if err := out.send(ev.Type, 0, ev); err != nil {
			return err
		}
		touch()
	}
}

type stdinInput struct {
	ProcessPath
	Close bool `query:"close" doc:"Give the process end of file after the body"`
}

// headerTaken of the answer is how many bytes a process was given.
const headerTaken = "X-Stdin-Taken"

// feedProcess hands the body on as it comes, at the pace at which the process
// reads it. A process that ends, or closes its input, before the body's end is no
// failure, as it is none in a shell's pipe.
func (a *API) feedProcess(_ context.Context, in *stdinInput) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		body := &bodyEnd{r: r.Body}
		var taken int64
		client, pid, err := a.process(r.Context(), &in.ProcessPath)
		if err == nil {
			taken, err = client.Feed(r.Context(), pid, body, in.Close)
		}
		answer := func() {
			if err != nil {
				a.fail(w, r, err)
				return
			}
			w.Header().Set(headerTaken, strconv.FormatInt(taken, 10))
			w.WriteHeader(http.StatusNoContent)
		}
		if body.reached.Load() {
			answer()
			return
		}
		// The transport may still be waiting for the rest of the body.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTime))
		early(w, r, answer)
	}), nil
}

// bodyEnd notes whether a body was read to its end.
type bodyEnd struct {
	r       io.Reader
	reached atomic.Bool
}

func (b *bodyEnd) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		b.reached.Store(true)
	}
	return n, err
}

// closeStdin gives a process end of file. One that has ended needs none.
func (a *API) closeStdin(ctx context.Context, in *ProcessPath) (*nothing, error) {
	client, pid, err := a.process(ctx, in)
	if err != nil {
		return nil, err
	}
	err = client.CloseStdin(ctx, pid)
	if api.CodeOf(err) == api.CodeProcessNotFound {
		_, err = client.Lookup(ctx, strconv.Itoa(pid))
	}
	return nil, err
}

type signalInput struct {
	ProcessPath
	Body api.SendSignal
}

func (a *API) signalProcess(ctx context.Context, in *signalInput) (*nothing, error) {
	sig, err := signalOf(in.Body.Signal)
	if err != nil {
		return nil, err
	}
	client, pid, err := a.process(ctx, &in.ProcessPath)
	if err != nil {
		return nil, err
	}
	if in.Body.Tree {
		return nil, client.SignalTree(ctx, pid, sig)
	}
	return nil, client.Signal(ctx, pid, sig)
}

func (a *API) killProcess(ctx context.Context, in *ProcessPath) (*nothing, error) {
	client, pid, err := a.process(ctx, in)
	if err != nil {
		return nil, err
	}
	return nil, client.KillTree(ctx, pid)
}

// signalOf reads a signal of a request.
func signalOf(name api.SignalName) (syscall.Signal, error) {
	sig, ok := guest.ParseSignal(string(name))
	if !ok {
		return 0, api.Errorf(api.CodeInvalidRequest, "signal: there is no signal %.40q", string(name)).With("field", "signal").
			WithHint("Write its name, such as SIGINT, or its number from 1 to 64.")
	}
	return sig, nil
}

// signalSchema stands for api.SignalName in the schema.
type signalSchema struct{}

func (signalSchema) Schema(huma.Registry) *huma.Schema {
	one, last := 1.0, 64.0
	return &huma.Schema{
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Description: "Name, with or without SIG"},
			{Type: huma.TypeInteger, Minimum: &one, Maximum: &last},
		},
		Examples: []any{"SIGINT", 15},
	}
}

func docAttach(op *huma.Operation) {
	op.Description = "Server-sent events named after their type (start, stdout, stderr, exit, error), each an ExecEvent; a terminal's output is stdout. " +
		"With replay it begins with the last 256 KiB of output, and also finds a process that ended within the last hour. The process goes on when the client leaves."
	content(op, "200", "text/event-stream", ref("ExecEvent"), "OK")
}

func docFeed(op *huma.Operation) {
	op.Description = "The body goes to the standard input or terminal of the process as it comes, of any length; the answer comes when the process's pipe has taken all of it, or when the process ends or closes its input before. " +
		"The header " + headerTaken + " says how many bytes it was given. A process that never ran, or ended more than an hour ago, is process.not_found."
	op.RequestBody = &huma.RequestBody{
		Description: "The bytes of the input",
		Content:     map[string]*huma.MediaType{"application/octet-stream": {Schema: binary()}},
	}
	op.Responses = map[string]*huma.Response{"204": {Description: "It was taken as far as the process read"}}
	op.DefaultStatus = http.StatusNoContent
}

func docKillProcess(op *huma.Operation) {
	op.Description = "Sends SIGKILL to the process and all that descends from it."
}
