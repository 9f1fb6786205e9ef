package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Cmd is a command to run in a sandbox, used like the one of os/exec: set
// fields, then Run, Output, CombinedOutput, or Start and Wait. It streams in
// both directions without limit and may be used once.
type Cmd struct {
	Args []string          // program and arguments, unless Line is set
	Line string            // shell line
	Env  map[string]string // added to the sandbox's own
	Dir  string            // default: the user's home directory
	User string            // default: the sandbox's default user

	// Timeout makes the server end the command after this long; 0 is never.
	Timeout time.Duration

	// Stdin is copied to the command; nil is an empty one. Wait does not wait
	// for a Read that is under way when the command ends.
	Stdin io.Reader

	// Stdout and Stderr take what the command writes; nil drops it. They are
	// written by one goroutine, so both may be the same. A Write error ends
	// the command and is Wait's error.
	Stdout, Stderr io.Writer

	// Cancel is called when the context ends, and must make the command end
	// soon; nil kills it. WaitDelay after that (default 5 s) the connection
	// is cut, which makes the server kill it.
	Cancel    func() error
	WaitDelay time.Duration

	// Process is set by Start.
	Process *Process
	// Result is set by Wait when the command ended by itself.
	Result *api.ExecResult

	ctx     context.Context
	sandbox *Sandbox
	run     *run
	closers []io.Closer // pipe ends to close when the command has ended
}

// ExitError is a command that did not end with status 0.
type ExitError struct {
	Result api.ExecResult
	Stderr []byte // set by Output: the last 32 KiB of what it wrote there
}

// ExitCode is the command's status, 128+n after signal n, 124 after a timeout.
func (e *ExitError) ExitCode() int { return e.Result.ExitCode }

func (e *ExitError) Error() string {
	switch {
	case e.Result.TimedOut:
		return "the command did not end in the time allowed"
	case e.Result.Signal != "":
		return "ended by " + e.Result.Signal
	}
	return fmt.Sprintf("exit status %d", e.Result.ExitCode)
}

// Command makes a command that runs a program without a shell. When ctx ends,
// so does the command.
func (s *Sandbox) Command(ctx context.Context, name string, arg ...string) *Cmd {
	return &Cmd{ctx: ctx, sandbox: s, Args: append([]string{name}, arg...)}
}

// ShellCommand is Command for a shell line.
func (s *Sandbox) ShellCommand(ctx context.Context, line string) *Cmd {
	return &Cmd{ctx: ctx, sandbox: s, Line: line}
}

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and gives what it wrote to standard output.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("client: Stdout is already set")
	}
	var out bytes.Buffer
	c.Stdout = &out
	tail := &tailBuffer{max: 32 << 10}
	if c.Stderr == nil {
		c.Stderr = tail
	}
	err := c.Run()
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Stderr = tail.b
	}
	return out.Bytes(), err
}

// CombinedOutput runs the command and gives all it wrote, in the order in which
// it came.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("client: Stdout or Stderr is already set")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// StdinPipe gives a writer to the command's standard input. Closing it is the
// end of the input.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil || c.Process != nil {
		return nil, errors.New("client: Stdin is already set")
	}
	r, w := io.Pipe()
	c.Stdin = r
	c.closers = append(c.closers, r)
	return w, nil
}

// StdoutPipe gives a reader of the command's standard output, which ends when
// the command does. Read it to its end before calling Wait.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) {
	return c.outputPipe(&c.Stdout, "Stdout")
}

// StderrPipe is StdoutPipe for standard error. Both are written by one
// goroutine: who takes both pipes must read them at the same time.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) {
	return c.outputPipe(&c.Stderr, "Stderr")
}

func (c *Cmd) outputPipe(to *io.Writer, name string) (io.ReadCloser, error) {
	if *to != nil || c.Process != nil {
		return nil, errors.New("client: " + name + " is already set")
	}
	r, w := io.Pipe()
	*to = w
	c.closers = append(c.closers, w)
	return r, nil
}

// Process is a command that was started.
type Process struct {
	PID int // in the sandbox
	run *run
}

// Signal sends a signal to the process, not to its children.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	if err := ctx.Err(); err != nil {
		return p.run.c.transportError(ctx, err)
	}
	// A write that its context ends would take the connection with it.
	return p.run.send(p.run.ctx, api.ExecInput{Type: "signal", Signal: signalName(sig)})
}

// Kill ends the process at once.
func (p *Process) Kill(ctx context.Context) error { return p.Signal(ctx, syscall.SIGKILL) }

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	b   []byte
	max int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - t.max; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}
