package client

import (
	"context"
	"encoding/json"
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

// ExecWith is Exec with everything that can be said about a command; Line and
// Argv make its Cmd. Use Command to stream.
func (s *Sandbox) ExecWith(ctx context.Context, in api.Exec) (*api.ExecResult, error) {
	var out api.ExecResult
	if err := s.c.call(ctx, request{method: http.MethodPost, path: s.path("exec"), in: in}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
