package guest

import (
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest/envdpb"
)

// How long after its end a process whose timeout the daemon must enforce is
// given up, and how long the last bytes of a stream may take.
const (
	timeoutGrace = 10 * time.Second
	endGrace     = 2 * time.Second
)

// maxInput is the largest piece of input sent in one message.
const maxInput = 256 << 10

// Size is that of a terminal in characters.
type Size struct{ Cols, Rows uint16 }

// Command is a program to start.
type Command struct {
	Cmd     string // a path, or a name to be found in PATH
	Args    []string
	Env     map[string]string
	Cwd     string        // empty: the sandbox's working directory, or the user's home
	User    string        // empty: the sandbox's default user
	Tag     string        // names the process beside its pid
	Stdin   bool          // false: standard input is empty
	PTY     *Size         // run in a terminal; Stdin is then its keyboard
	Timeout time.Duration // kill it and all it started after this; 0 is never
}

// Event is one thing that happened to a process; exactly one field is set.
type Event struct {
	Stdout, Stderr, PTY []byte
	Exit                *Exit
}

// Exit is how a process ended.
type Exit struct {
	Code   int    // 128+n after signal n
	Signal string // as SIGKILL; empty if it ended by itself
	Status string // in words
}

// ProcessInfo is one running process that was started through the daemon.
type ProcessInfo struct {
	PID  int
	Tag  string
	Cmd  string
	Args []string
	Cwd  string
	Env  map[string]string
}

// Process is one process that this client follows. Recv is for one goroutine.
type Process struct {
	pid    int
	next   func() (*envdpb.ProcessEvent, error) // io.EOF at the end of the stream
	close  func() error                         // only beside no next
	ctx    context.Context
	cancel context.CancelFunc
	limit  *time.Timer
	late   atomic.Bool // limit was reached
	over   bool        // of Recv
	lost   int64       // bytes of output from before a replay
}

// detached hides the deadline of a context: sent along, it would be the
// lifetime of the process.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// Start runs a program and returns when it runs. The end of ctx detaches, like
// Close; the program goes on. A program that cannot be run is process.invalid
// with the detail errno, ENOENT for one that is not there.
func (c *Client) Start(ctx context.Context, cmd Command) (*Process, error) {
	if err := checkCommand(&cmd); err != nil {
		return nil, err
	}
	msg := &envdpb.StartRequest{
		Process: &envdpb.ProcessConfig{Cmd: cmd.Cmd, Args: cmd.Args, Envs: cmd.Env},
		Stdin:   &cmd.Stdin,
	}
	if cmd.Cwd != "" {
		msg.Process.Cwd = &cmd.Cwd
	}
	if cmd.Tag != "" {
		msg.Tag = &cmd.Tag
	}
	if cmd.PTY != nil {
		msg.Pty = ptySize(*cmd.PTY)
	}
	req := request(c, cmd.User, msg)
	if cmd.Timeout > 0 {
		ms := min(max(cmd.Timeout.Milliseconds(), 1), 9_999_999_999) // the header has ten digits
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(ms, 10))
	}
	ctx, cancel := context.WithCancel(detached{ctx})
	stream, err := c.proc.Start(ctx, req)
	if err != nil {
		cancel()
		return nil, rpcError(ctx, err, areaProcess)
	}
	p := &Process{ctx: ctx, cancel: cancel, close: stream.Close}
	p.next = func() (*envdpb.ProcessEvent, error) {
		if !stream.Receive() {
			return nil, endOf(stream.Err())
		}
		return stream.Msg().GetEvent(), nil
	}
	if cmd.Timeout > 0 {
		p.limit = time.AfterFunc(cmd.Timeout+timeoutGrace, func() { p.late.Store(true); cancel() })
	}
	return p.begin()
}

// Attach follows a process that runs, or that ended a moment ago. Output from
// before is not repeated.
func (c *Client) Attach(ctx context.Context, pid int) (*Process, error) {
	return c.attach(ctx, pid, false)
}

// AttachReplay is Attach that begins with what the daemon keeps of the output so
// far, without a gap or a repetition before what follows. It also finds a process
// that ended within the last hour.
func (c *Client) AttachReplay(ctx context.Context, pid int) (*Process, error) {
	return c.attach(ctx, pid, true)
}

func (c *Client) attach(ctx context.Context, pid int, replay bool) (*Process, error) {
	sel, err := selector(pid)
	if err != nil {
		return nil, err
	}
	req := request(c, "", &envdpb.ConnectRequest{Process: sel})
	if replay {
		req.Header().Set("X-Replay", "1")
	}
	ctx, cancel := context.WithCancel(detached{ctx})
	stream, err := c.proc.Connect(ctx, req)
	if err != nil {
		cancel()
		return nil, rpcError(ctx, err, areaProcess)
	}
	p := &Process{ctx: ctx, cancel: cancel, close: stream.Close}
	p.next = func() (*envdpb.ProcessEvent, error) {
		if !stream.Receive() {
			return nil, endOf(stream.Err())
		}
		return stream.Msg().GetEvent(), nil
	}
	if p, err = p.begin(); err == nil {
		p.lost, _ = strconv.ParseInt(stream.ResponseHeader().Get("X-Replay-Skipped"), 10, 64)
	}
	return p, err
}

func endOf(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// begin reads the first event, which says the pid.
func (p *Process) begin() (*Process, error) {
	ev, err := p.next()
	if err == nil {
		if start := ev.GetStart(); start != nil && start.GetPid() > 0 && start.GetPid() <= math.MaxInt32 {
			p.pid = int(start.GetPid())
			return p, nil
		}
		err = errors.New("the first event is not a start")
	}
	return nil, p.fail(err)
}

// PID is the number of the process inside the sandbox.
func (p *Process) PID() int { return p.pid }

// Skipped is how many bytes of output from before a replay are not kept.
func (p *Process) Skipped() int64 { return max(0, p.lost) }

// Recv gives the next event. After Exit it gives io.EOF. A process that ran
// longer than its timeout ends with request.timeout instead of Exit.
func (p *Process) Recv() (Event, error) {
	for !p.over {
		ev, err := p.next()
		if err != nil {
			return Event{}, p.fail(err)
		}
		switch v := ev.GetEvent().(type) {
		case *envdpb.ProcessEvent_Data:
			switch d := v.Data.GetOutput().(type) {
			case *envdpb.ProcessEvent_DataEvent_Stdout:
				return Event{Stdout: d.Stdout}, nil
			case *envdpb.ProcessEvent_DataEvent_Stderr:
				return Event{Stderr: d.Stderr}, nil
			case *envdpb.ProcessEvent_DataEvent_Pty:
				return Event{PTY: d.Pty}, nil
			}
		case *envdpb.ProcessEvent_End:
			p.finish()
			return Event{Exit: exitOf(v.End)}, nil
		}
	}
	return Event{}, io.EOF
}

// finish reads the end of the stream, so that its connection can be used again.
func (p *Process) finish() {
	p.over = true
	t := time.AfterFunc(endGrace, p.cancel)
	defer t.Stop()
	if _, err := p.next(); err == nil {
		p.cancel() // more after the end: not a stream to read on
	}
	_ = p.close() // it says only that the stream was not read to its end
	p.Close()
}

// fail ends the stream and gives the coded form of its error.
func (p *Process) fail(err error) error {
	p.over = true
	coded := rpcError(p.ctx, err, areaProcess) // before Close, which cancels
	switch {
	case p.late.Load():
		coded = api.Wrap(api.CodeTimeout, err, "the process ran longer than its timeout, and its sandbox did not say that it was killed")
	case err == io.EOF:
		coded = api.Errorf(api.CodeSandboxDied, "the sandbox ended before its process did")
	}
	_ = p.close() // the error of the stream is the one to tell
	p.Close()
	return coded
}

// Close detaches from the process, which goes on. It may be called at any time,
// more than once, and beside Recv.
func (p *Process) Close() {
	if p.limit != nil {
		p.limit.Stop()
	}
	p.cancel() // a stream in the middle has its connection closed
}

func checkCommand(cmd *Command) error {
	if cmd.Cmd == "" {
		return api.Errorf(api.CodeProcessInvalid, "the command is empty")
	}
	if err := checkText(api.CodeProcessInvalid, "the command", append(cmd.Args, cmd.Cmd, cmd.Cwd, cmd.User, cmd.Tag)...); err != nil {
		return err
	}
	for k, v := range cmd.Env {
		if err := checkText(api.CodeProcessInvalid, "the environment", k, v); err != nil {
			return err
		}
	}
	return nil
}

func ptySize(s Size) *envdpb.PTY {
	return &envdpb.PTY{Size: &envdpb.PTY_Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}}
}

func selector(pid int) (*envdpb.ProcessSelector, error) {
	if pid <= 0 || pid > math.MaxInt32 {
		return nil, api.Errorf(api.CodeProcessNotFound, "there is no process %d", pid)
	}
	return &envdpb.ProcessSelector{Selector: &envdpb.ProcessSelector_Pid{Pid: uint32(pid)}}, nil
}

// List gives the processes that were started through the daemon and still run.
func (c *Client) List(ctx context.Context) ([]ProcessInfo, error) {
	resp, err := c.proc.List(ctx, request(c, "", &envdpb.ListRequest{}))
	if err != nil {
		return nil, rpcError(ctx, err, areaProcess)
	}
	var out []ProcessInfo
	for _, p := range resp.Msg.GetProcesses() {
		out = append(out, ProcessInfo{
			PID: int(p.GetPid()), Tag: p.GetTag(), Cmd: p.GetConfig().GetCmd(), Args: p.GetConfig().GetArgs(),
			Cwd: p.GetConfig().GetCwd(), Env: p.GetConfig().GetEnvs(),
		})
	}
	return out, nil
}

// SendInput writes to the standard input of a process, or to its terminal if
// PTY was asked for at its start. It returns when the process's pipe has taken
// everything, so a program that does not read holds it up.
func (c *Client) SendInput(ctx context.Context, pid int, data []byte) error {
	return c.sendInput(ctx, pid, data, func(b []byte) *envdpb.ProcessInput {
		return &envdpb.ProcessInput{Input: &envdpb.ProcessInput_Stdin{Stdin: b}}
	})
}

// SendPTY is SendInput for a process in a terminal.
func (c *Client) SendPTY(ctx context.Context, pid int, data []byte) error {
	return c.sendInput(ctx, pid, data, func(b []byte) *envdpb.ProcessInput {
		return &envdpb.ProcessInput{Input: &envdpb.ProcessInput_Pty{Pty: b}}
	})
}

func (c *Client) sendInput(ctx context.Context, pid int, data []byte, input func([]byte) *envdpb.ProcessInput) error {
	sel, err := selector(pid)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), maxInput)
		_, err := c.proc.SendInput(ctx, request(c, "", &envdpb.SendInputRequest{Process: sel, Input: input(data[:n])}))
		if err != nil {
			return rpcError(ctx, err, areaProcess)
		}
		data = data[n:]
	}
	return nil
}

// CloseStdin gives the process end of file.
func (c *Client) CloseStdin(ctx context.Context, pid int) error {
	sel, err := selector(pid)
	if err == nil {
		_, err = c.proc.CloseStdin(ctx, request(c, "", &envdpb.CloseStdinRequest{Process: sel}))
		err = rpcError(ctx, err, areaProcess)
	}
	return err
}

// Signal signals the process itself, not its children.
func (c *Client) Signal(ctx context.Context, pid int, sig syscall.Signal) error {
	return c.signal(ctx, pid, sig, "")
}

// SignalTree signals the process and all that it started.
func (c *Client) SignalTree(ctx context.Context, pid int, sig syscall.Signal) error {
	return c.signal(ctx, pid, sig, "tree")
}

// KillTree kills the process and all that it started.
func (c *Client) KillTree(ctx context.Context, pid int) error {
	return c.signal(ctx, pid, syscall.SIGKILL, "tree")
}

func (c *Client) signal(ctx context.Context, pid int, sig syscall.Signal, scope string) error {
	sel, err := selector(pid)
	if err != nil {
		return err
	}
	req := request(c, "", &envdpb.SendSignalRequest{Process: sel, Signal: envdpb.Signal(sig)})
	if scope != "" {
		req.Header().Set("X-Signal-Scope", scope)
	}
	_, err = c.proc.SendSignal(ctx, req)
	return rpcError(ctx, err, areaProcess)
}

// Resize changes the size of the process's terminal.
func (c *Client) Resize(ctx context.Context, pid int, size Size) error {
	sel, err := selector(pid)
	if err != nil {
		return err
	}
	_, err = c.proc.Update(ctx, request(c, "", &envdpb.UpdateRequest{Process: sel, Pty: ptySize(size)}))
	return rpcError(ctx, err, areaProcess)
}
