package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

// Line is a shell line in the form that api.Exec wants.
func Line(line string) json.RawMessage {
	raw, _ := json.Marshal(line)
	return raw
}

// Argv is a program with its arguments in the form that api.Exec wants; no
// shell sees them.
func Argv(name string, arg ...string) json.RawMessage {
	raw, _ := json.Marshal(append([]string{name}, arg...))
	return raw
}

// Exec runs a program with arguments and gives its whole output, up to 16 MiB
// a stream. A program that fails is a result with its exit code, not an error;
// one that does not exist has exit code 127.
func (s *Sandbox) Exec(ctx context.Context, name string, arg ...string) (*api.ExecResult, error) {
	return s.ExecWith(ctx, api.Exec{Cmd: Argv(name, arg...)})
}

// Shell is Exec for a shell line.
func (s *Sandbox) Shell(ctx context.Context, line string) (*api.ExecResult, error) {
	return s.ExecWith(ctx, api.Exec{Cmd: Line(line)})
}

// ExecStream runs a command and gives its events as they come, as slowly as the
// caller takes them: start, output, exit. It ends after the first error; leaving
// it kills the command. Command does the same in the manner of os/exec, and takes
// input while the command runs.
func (s *Sandbox) ExecStream(ctx context.Context, in api.Exec) iter.Seq2[api.ExecEvent, error] {
	return follow[api.ExecEvent](ctx, s.c, request{method: http.MethodPost, path: s.path("exec", "stream"), in: in})
}

// ExecWith is Exec with everything that can be said about a command; Line and
// Argv make its Cmd. Use Command to stream.
func (s *Sandbox) ExecWith(ctx context.Context, in api.Exec) (*api.ExecResult, error) {
	var out api.ExecResult
	if err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("exec"), in: in}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
