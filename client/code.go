package client

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
)

// CodeOptions says how code is run; the zero value is Python in the sandbox's
// shared context, without a limit.
type CodeOptions struct {
	Language string            // python, javascript, typescript or bash
	Context  string            // id of a context to run in instead
	Env      map[string]string // for this code only
	Timeout  time.Duration     // interrupts the code; 0 is never
}

func (o CodeOptions) request(code string, stream bool) api.RunCode {
	ms := o.Timeout.Milliseconds()
	if ms == 0 && o.Timeout > 0 {
		ms = 1
	}
	return api.RunCode{Code: code, Language: o.Language, ContextID: o.Context, Env: o.Env, TimeoutMS: ms, Stream: stream}
}

// RunCode runs code in a context and gives all that came of it. What it defines
// stays for the next call. An error that the code raises is in the answer's
// Error, not an error of this call.
func (s *Sandbox) RunCode(ctx context.Context, code string, o CodeOptions) (*api.CodeRun, error) {
	var out api.CodeRun
	r := request{method: http.MethodPost, path: s.path("code"), in: o.request(code, false)}
	if err := s.c.call(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// StreamCode is RunCode that gives events as they come, as slowly as the caller
// takes them. It ends after the first error; leaving it interrupts the code.
func (s *Sandbox) StreamCode(ctx context.Context, code string, o CodeOptions) iter.Seq2[api.CodeEvent, error] {
	return follow[api.CodeEvent](ctx, s.c, request{method: http.MethodPost, path: s.path("code"), in: o.request(code, true)})
}

// CreateContext makes a code context, an interpreter of its own.
func (s *Sandbox) CreateContext(ctx context.Context, in api.CreateContext) (*api.CodeContext, error) {
	var out api.CodeContext
	if err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("contexts"), in: in}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Contexts lists the sandbox's code contexts, oldest first.
func (s *Sandbox) Contexts(ctx context.Context) ([]api.CodeContext, error) {
	var out api.ContextList
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("contexts")}, &out)
	return out.Contexts, err
}

// DeleteContext ends a context with what it runs.
func (s *Sandbox) DeleteContext(ctx context.Context, id string) error {
	return s.c.call(ctx, request{method: http.MethodDelete, path: s.path("contexts", id)}, nil)
}

// RestartContext gives a context a new kernel, without any state.
func (s *Sandbox) RestartContext(ctx context.Context, id string) error {
	return s.c.call(ctx, request{method: http.MethodPost, path: s.path("contexts", id, "restart")}, nil)
}

// InterruptContext stops the code that a context runs, if any does.
func (s *Sandbox) InterruptContext(ctx context.Context, id string) error {
	return s.c.call(ctx, request{method: http.MethodPost, path: s.path("contexts", id, "interrupt")}, nil)
}

// CodeLanguages lists the languages that the sandbox's template can run.
func (s *Sandbox) CodeLanguages(ctx context.Context) ([]string, error) {
	var out api.CodeLanguages
	err := s.c.call(ctx, request{method: http.MethodGet, path: s.path("code", "languages")}, &out)
	return out.Languages, err
}
