package control

import (
	"context"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// maxBuffered bounds what the buffered call keeps of a stream.
const maxBuffered = 16 << 20

// Exec runs a command to its end and gives its output, up to 16 MiB of a stream;
// what comes after is read and dropped, so that the command does not stall. A
// command in the background is answered as soon as it has started. When the
// client leaves, the command is killed.
func (s *Service) Exec(ctx context.Context, who auth.Identity, id string, req api.Exec) (api.ExecResult, error) {
	r, err := s.run(ctx, who, id, req)
	if err != nil {
		return absent(req, err)
	}
	defer r.close()
	if req.Background {
		return api.ExecResult{PID: r.proc.PID(), DurationMS: r.elapsed()}, nil
	}
	var stdout, stderr buffer
	result, err := r.follow(func(e guest.Event) error {
		stdout.add(e.Stdout)
		stderr.add(e.Stderr)
		return nil
	})
	if err != nil {
		return api.ExecResult{}, err
	}
	result.Stdout, result.Stderr = stdout.text(), stderr.text()
	result.Truncated = stdout.cut || stderr.cut
	return result, nil
}

// ExecStream runs a command and emits its start, its output as it comes and its
// end. Nothing is read ahead of emit, so output of any length takes constant
// memory. When the client leaves or emit fails, the command is killed unless it
// runs in the background.
func (s *Service) ExecStream(ctx context.Context, who auth.Identity, id string, req api.Exec, emit func(api.ExecEvent) error) error {
	r, err := s.run(ctx, who, id, req)
	if err != nil {
		return emitAbsent(req, err, emit)
	}
	defer r.close()
	if err := emit(api.ExecEvent{Type: "start", PID: r.proc.PID()}); err != nil {
		return err
	}
	result, err := r.follow(func(e guest.Event) error {
		if len(e.Stdout) > 0 {
			if err := emit(api.ExecEvent{Type: "stdout", Data: e.Stdout}); err != nil {
				return err
			}
		}
		if len(e.Stderr) > 0 {
			return emit(api.ExecEvent{Type: "stderr", Data: e.Stderr})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return emit(api.ExecEvent{Type: "exit", PID: result.PID, Result: &result})
}

// StartCommand starts a command whose input and output the caller handles. When
// ctx ends, the process's events end and the process goes on: the caller kills
// it if it should not. Standard input is open unless the request has one.
func (s *Service) StartCommand(ctx context.Context, who auth.Identity, id string, req api.Exec) (*guest.Process, *guest.Client, error) {
	cmd, err := parseExec(req)
	if err != nil {
		return nil, nil, err
	}
	if req.Stdin != nil && len(*req.Stdin) > maxStdinBehind {
		return nil, nil, api.Errorf(api.CodeTooLarge, "stdin of the first message may have %d bytes", maxStdinBehind).With("field", "stdin")
	}
	client, err := s.Guest(ctx, who, id)
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdin = true
	proc, _, err := startDetached(ctx, client, cmd)
	if err != nil {
		return nil, nil, err
	}
	if req.Stdin != nil {
		feed(ctx, client, proc.PID(), *req.Stdin, req.KeepStdin)
	}
	return proc, client, nil
}

// absent is the answer for a program that does not exist, in a shell's words;
// other errors stay errors.
func absent(req api.Exec, err error) (api.ExecResult, error) {
	name, ok := missingProgram(req, err)
	if !ok {
		return api.ExecResult{}, err
	}
	return api.ExecResult{ExitCode: 127, Stderr: name + ": not found\n"}, nil
}

func emitAbsent(req api.Exec, err error, emit func(api.ExecEvent) error) error {
	result, err := absent(req, err)
	if err != nil {
		return err
	}
	text := result.Stderr
	result.Stderr = ""
	if err := emit(api.ExecEvent{Type: "start"}); err != nil {
		return err
	}
	if err := emit(api.ExecEvent{Type: "stderr", Data: []byte(text)}); err != nil {
		return err
	}
	return emit(api.ExecEvent{Type: "exit", Result: &result})
}

// buffer keeps the first maxBuffered bytes it is given.
type buffer struct {
	data []byte
	cut  bool
}

func (b *buffer) add(p []byte) {
	if room := maxBuffered - len(b.data); len(p) > room {
		p, b.cut = p[:room], true
	}
	b.data = append(b.data, p...)
}

func (b *buffer) text() string { return strings.ToValidUTF8(string(b.data), "\uFFFD") }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
