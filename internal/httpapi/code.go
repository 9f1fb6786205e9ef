package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// Bounds of what the buffered call keeps.
const (
	maxCodeText    = 8 << 20  // of stdout, and of stderr
	maxCodeResults = 32 << 20 // bytes of all results
	maxCodeShown   = 1000     // results
)

type runCodeInput struct {
	SandboxPath
	Body api.RunCode
}

// runCode answers with the whole execution, or with its events as they come.
func (a *API) runCode(ctx context.Context, in *runCodeInput) (*huma.StreamResponse, error) {
	if in.Body.ContextID != "" && in.Body.Language != "" {
		return nil, api.Errorf(api.CodeInvalidRequest, "only one of context_id and language may be given").With("field", "language")
	}
	if !in.Body.Stream {
		out, err := a.finished(ctx, in.ID, in.Body)
		if err != nil {
			return nil, err
		}
		return raw(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, out) }), nil
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := newEventStream(w)
		err := out.during(a.KeepAlive, func() error {
			return a.codeEvents(ctx, in.ID, in.Body, func(e api.CodeEvent) error { return out.send(e.Type, 0, e) })
		})
		a.metrics.executed("code", start, err)
		if err != nil {
			a.endStream(out, w, r, err, func(e *api.Error) any { return api.CodeEvent{Type: "error", Error: e} })
		}
	}), nil
}

// codeEvents runs code and emits its events.
func (a *API) codeEvents(ctx context.Context, id string, req api.RunCode, emit func(api.CodeEvent) error) error {
	client, err := a.Control.Guest(ctx, who(ctx), id)
	if err != nil {
		return err
	}
	return a.codeEventsOf(ctx, client, id, req, emit)
}

func (a *API) codeEventsOf(ctx context.Context, client *guest.Client, id string, req api.RunCode, emit func(api.CodeEvent) error) error {
	start := time.Now()
	stream, err := client.RunCode(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	touch := a.toucher(id)
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		touch()
		if e.Type == "end" {
			e.DurationMS = float64(time.Since(start).Microseconds()) / 1000
		}
		if err := emit(e); err != nil {
			return err
		}
	}
}

// finished runs code to its end.
func (a *API) finished(ctx context.Context, id string, req api.RunCode) (api.CodeRun, error) {
	start := time.Now()
	c := codeCollector{run: api.CodeRun{Results: []api.CodeOutput{}}}
	err := a.codeEvents(ctx, id, req, func(e api.CodeEvent) error { c.add(e); return nil })
	a.metrics.executed("code", start, err)
	c.run.Stdout, c.run.Stderr = string(c.stdout), string(c.stderr)
	return c.run, err
}

// codeCollector makes one answer of the events of an execution.
type codeCollector struct {
	run            api.CodeRun
	stdout, stderr []byte
	size           int // of the results
}

func (c *codeCollector) add(e api.CodeEvent) {
	switch e.Type {
	case "start":
		c.run.ExecutionCount = e.ExecutionCount
	case "stdout":
		c.stdout = c.keep(c.stdout, e.Text)
	case "stderr":
		c.stderr = c.keep(c.stderr, e.Text)
	case "result":
		c.size += codeOutputSize(e.Result)
		if c.size > maxCodeResults || len(c.run.Results) >= maxCodeShown {
			c.run.Truncated = true
			return
		}
		c.run.Results = append(c.run.Results, *e.Result)
		if e.Result.IsMain {
			c.run.Text = e.Result.Text
		}
	case "exception":
		c.run.Error = e.Exception
	case "end":
		c.run.DurationMS, c.run.TimedOut = e.DurationMS, e.TimedOut
	}
}

func (c *codeCollector) keep(to []byte, text string) []byte {
	if room := maxCodeText - len(to); len(text) > room {
		text, c.run.Truncated = text[:room], true
	}
	return append(to, text...)
}

func codeOutputSize(o *api.CodeOutput) int {
	return len(o.Text) + len(o.HTML) + len(o.Markdown) + len(o.SVG) + len(o.PNG) + len(o.JPEG) + len(o.PDF) +
		len(o.LaTeX) + len(o.JavaScript) + len(o.JSON) + len(o.Data) + len(o.Chart) + len(o.Extra)
}

type createContextInput struct {
	SandboxPath
	Body api.CreateContext `required:"false"`
}

type contextOutput struct{ Body api.CodeContext }

func (a *API) createContext(ctx context.Context, in *createContextInput) (*contextOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	c, err := client.CreateContext(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	return &contextOutput{c}, nil
}

type contextsOutput struct{ Body api.ContextList }

func (a *API) listContexts(ctx context.Context, in *SandboxPath) (*contextsOutput, error) {
	list, err := a.contexts(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &contextsOutput{api.ContextList{Contexts: list}}, nil
}

func (a *API) contexts(ctx context.Context, id string) ([]api.CodeContext, error) {
	client, err := a.Control.Guest(ctx, who(ctx), id)
	if err != nil {
		return nil, err
	}
	return client.Contexts(ctx)
}

// ContextPath is the part of a request that names a code context. It is exported
// for the framework, as SandboxPath is.
type ContextPath struct {
	SandboxPath
	Context string `path:"context" maxLength:"64" doc:"Id of the context"`
}

// onContext makes a handler of a call about one context that answers nothing.
func (a *API) onContext(call func(*guest.Client, context.Context, string) error) func(context.Context, *ContextPath) (*struct{}, error) {
	return func(ctx context.Context, in *ContextPath) (*struct{}, error) {
		client, err := a.Control.Guest(ctx, who(ctx), in.ID)
		if err == nil {
			err = call(client, ctx, in.Context)
		}
		return nil, err
	}
}

type codeLanguagesOutput struct{ Body api.CodeLanguages }

func (a *API) sandboxLanguages(ctx context.Context, in *SandboxPath) (*codeLanguagesOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	list, err := client.CodeLanguages(ctx)
	if err != nil {
		return nil, err
	}
	return &codeLanguagesOutput{api.CodeLanguages{Languages: list}}, nil
}

func (a *API) languages(context.Context, *struct{}) (*codeLanguagesOutput, error) {
	return &codeLanguagesOutput{api.CodeLanguages{Languages: api.Languages}}, nil
}

type replInput struct {
	SandboxPath
	Body api.Repl
}

type codeRunOutput struct{ Body api.CodeRun }

func (a *API) repl(ctx context.Context, in *replInput) (*codeRunOutput, error) {
	return a.replRun(ctx, in.ID, api.RunCode{Code: in.Body.Code, Language: in.Body.Language, TimeoutMS: in.Body.TimeoutMS})
}

func (a *API) replRun(ctx context.Context, id string, req api.RunCode) (*codeRunOutput, error) {
	out, err := a.finished(ctx, id, req)
	if err != nil {
		return nil, err
	}
	return &codeRunOutput{out}, nil
}

type sessionsOutput struct{ Body api.SessionList }

func (a *API) listSessions(ctx context.Context, in *SandboxPath) (*sessionsOutput, error) {
	list, err := a.contexts(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &sessionsOutput{api.SessionList{Sessions: list}}, nil
}

type replRunInput struct {
	ContextPath
	Body api.ReplRun
}

func (a *API) runInSession(ctx context.Context, in *replRunInput) (*codeRunOutput, error) {
	return a.replRun(ctx, in.ID, api.RunCode{Code: in.Body.Code, ContextID: in.Context, TimeoutMS: in.Body.TimeoutMS})
}

func docRunCode(op *huma.Operation) {
	op.Description = "State stays in the context from one call to the next. An error that the code raises is in the answer; it is no error of the call. " +
		"With `stream` server-sent events named after their type (start, stdout, stderr, result, exception, end, error), each a CodeEvent. " +
		"Closing the connection interrupts the code."
	content(op, "200", "application/json", ref("CodeRun"), "OK")
	content(op, "200", "text/event-stream", ref("CodeEvent"), "OK")
	errorAnswer(op, "default", "Error")
}

func docCreateContext(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "An interpreter of its own. An empty body takes every default."
}

func docRepl(op *huma.Operation) {
	op.Description = "Runs code in the context that the sandbox shares for the language, as `code` does."
}
