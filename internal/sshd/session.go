package sshd

import (
	"context"
	"io"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

const (
	maxEnv      = 64   // variables of a session
	maxEnvBytes = 1024 // of one value
	hupGrace    = 5 * time.Second
	killWithin  = 5 * time.Second
	askWithin   = 10 * time.Second // for a signal or a size to be taken
	failed      = 255              // the exit status of what did not run
)

// session is one shell, command or file transfer.
type session struct {
	c    *conn
	ch   ssh.Channel
	work sync.WaitGroup
	gone context.CancelFunc // the client has left

	// Of the requests before the start; then unchanged.
	env     map[string]string
	tty     bool
	started bool

	mu     sync.Mutex
	size   guest.Size
	proc   *guest.Process // once it runs
	client *guest.Client
}

// The payloads of requests, in RFC 4254's order.
type (
	ptyRequest struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	windowChange struct{ Cols, Rows, Width, Height uint32 }
	envRequest   struct{ Name, Value string }
	oneString    struct{ Value string }
	exitStatus   struct{ Status uint32 }
	exitSignal   struct {
		Signal     string
		CoreDumped bool
		Message    string
		Language   string
	}
)

// session serves one channel until both sides are done with it.
func (c *conn) session(ctx context.Context, nc ssh.NewChannel) {
	c.mu.Lock()
	no := c.noSessions
	c.mu.Unlock()
	if no {
		refuse(nc, ssh.Prohibited, "the client said that there will be no more sessions")
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		return // the client is gone
	}
	ctx, gone := context.WithCancel(ctx)
	s := &session{c: c, ch: ch, gone: gone, env: map[string]string{}}
	for r := range reqs { // until the channel is closed
		ok := s.request(ctx, r)
		if r.WantReply {
			_ = r.Reply(ok, nil) // fails only when the client is gone
		}
	}
	gone()
	s.work.Wait()
	_ = ch.Close() // as above
}

// request does what the client asks for, and reports whether it was done.
func (s *session) request(ctx context.Context, r *ssh.Request) bool {
	switch r.Type {
	case "pty-req":
		var p ptyRequest
		if s.started || ssh.Unmarshal(r.Payload, &p) != nil {
			return false
		}
		s.tty = true
		s.env["TERM"] = terminalKind(p.Term)
		s.resize(ctx, p.Cols, p.Rows)
		return true
	case "window-change":
		var p windowChange
		if ssh.Unmarshal(r.Payload, &p) == nil {
			s.resize(ctx, p.Cols, p.Rows)
		}
		return true
	case "env":
		var p envRequest
		if s.started || ssh.Unmarshal(r.Payload, &p) != nil || !passed(p.Name) || len(p.Value) > maxEnvBytes || len(s.env) >= maxEnv {
			return false
		}
		s.env[p.Name] = p.Value
		return true
	case "signal":
		var p oneString
		return ssh.Unmarshal(r.Payload, &p) == nil && s.signal(ctx, p.Value)
	case "shell", "exec", "subsystem":
		var p oneString
		if s.started || r.Type != "shell" && ssh.Unmarshal(r.Payload, &p) != nil || r.Type == "subsystem" && p.Value != "sftp" {
			return false
		}
		s.started = true
		s.work.Go(func() { s.run(ctx, r.Type, p.Value) })
		return true
	}
	return false // agent and X11 forwarding among them
}

// terminalNames is what a kind of terminal may be called: it becomes part of a
// path in the sandbox.
var terminalNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`) })

func terminalKind(name string) string {
	if terminalNames().MatchString(name) {
		return name
	}
	return "xterm-256color"
}

// passed reports whether a variable of the client's environment goes into the
// session: those of language and looks. Others could hold what is nobody's business
// in a sandbox.
func passed(name string) bool {
	switch name {
	case "LANG", "LANGUAGE", "TZ", "COLORTERM", "NO_COLOR":
		return true
	}
	rest, ok := strings.CutPrefix(name, "LC_")
	return ok && len(rest) <= 32 && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

// resize notes the size of the terminal, and tells the process if it runs.
func (s *session) resize(ctx context.Context, cols, rows uint32) {
	if cols == 0 || rows == 0 || cols > 0xffff || rows > 0xffff {
		return
	}
	s.mu.Lock()
	s.size = guest.Size{Cols: uint16(cols), Rows: uint16(rows)}
	size, proc, client := s.size, s.proc, s.client
	s.mu.Unlock()
	if proc != nil && s.tty {
		ctx, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		_ = client.Resize(ctx, proc.PID(), size) // a process that has just ended has no size
	}
}

func (s *session) signal(ctx context.Context, name string) bool {
	sig, ok := guest.ParseSignal(name)
	s.mu.Lock()
	proc, client := s.proc, s.client
	s.mu.Unlock()
	if !ok || proc == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return client.SignalTree(ctx, proc.PID(), sig) == nil
}

// run runs what was asked for and says how it ended.
func (s *session) run(ctx context.Context, kind, arg string) {
	defer s.c.s.Sandboxes.Use(s.c.id)()
	exit, err := s.execute(ctx, kind, arg)
	if err != nil {
		s.complain(err)
		exit = &guest.Exit{Code: failed}
	}
	// Nobody is there to be told when one of these fails.
	_ = s.ch.CloseWrite()
	if exit.Signal != "" {
		_, _ = s.ch.SendRequest("exit-signal", false, ssh.Marshal(exitSignal{Signal: strings.TrimPrefix(exit.Signal, "SIG"), Message: exit.Status}))
	} else {
		_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(exitStatus{uint32(exit.Code)}))
	}
	_ = s.ch.Close()
}

// complain says what is wrong where the client's user sees it.
func (s *session) complain(err error) {
	e := api.AsError(err)
	if e.Code == api.CodeInternal {
		s.c.s.Log.Error("an SSH session failed", "sandbox_id", s.c.id, "error", err)
	}
	text := "pandastack: " + e.Message
	if hint := advice(e, s.c.id); hint != "" {
		text += "\r\nhint: " + hint
	}
	_, _ = io.WriteString(s.ch.Stderr(), text+"\r\n") // nobody may be there to be told
}

// advice is what to do about a failure.
func advice(e *api.Error, id string) string {
	if e.Code == api.CodeSandboxState && e.Details["status"] == string(api.StatusPaused) {
		return "Let it go on with `pandastack sandbox resume " + id + "`."
	}
	if e.Code == api.CodeSandboxDied {
		return "It was stopped or put to sleep; connecting again wakes one that sleeps."
	}
	return e.Hint
}

// commands are what a request runs, the first that can be started.
func (s *session) commands(a account, kind, arg string) []guest.Command {
	cmd := guest.Command{Env: maps.Clone(s.env), Stdin: true}
	cmd.Env["SHELL"] = a.shell
	if s.tty {
		s.mu.Lock()
		size := s.size
		s.mu.Unlock()
		if size == (guest.Size{}) {
			size = guest.Size{Cols: 80, Rows: 24}
		}
		cmd.PTY = &size
	}
	switch kind {
	case "shell":
		cmd.Args = []string{"-l"}
		return a.tries(cmd, true)
	case "exec":
		cmd.Args = []string{"-c", arg}
		return a.tries(cmd, true)
	}
	cmd.Cmd, cmd.Args, cmd.PTY = s.c.s.GuestProgram, []string{"sftp-server"}, nil
	return a.tries(cmd, false)
}

// execute runs a command to its end. When the client leaves it is ended.
func (s *session) execute(ctx context.Context, kind, arg string) (*guest.Exit, error) {
	a, err := s.c.account(ctx)
	if err != nil {
		return nil, err
	}
	commands := s.commands(a, kind, arg)
	proc, client, err := s.c.start(ctx, commands)
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	over := make(chan struct{})
	ending := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ending)
		hangUp(ctx, client, proc, over)
	})
	defer func() {
		close(over)
		if !stop() {
			<-ending
		}
	}()
	s.mu.Lock()
	s.proc, s.client = proc, client
	size := s.size
	s.mu.Unlock()
	pty := commands[0].PTY
	if pty != nil && size != *pty { // it changed meanwhile
		s.resize(ctx, uint32(size.Cols), uint32(size.Rows))
	}
	s.work.Go(func() {
		// What it did not take, because it ended, is nothing to complain about.
		_, _ = client.Feed(ctx, proc.PID(), &touching{s.ch, s.c}, pty == nil)
	})
	exit, err := s.follow(proc)
	if err != nil && ctx.Err() == nil {
		// It is not known whether it still runs, and nobody will see it again.
		last, cancel := context.WithTimeout(ctx, killWithin)
		defer cancel()
		_ = client.KillTree(last, proc.PID()) // a sandbox that is asleep stays so
	}
	return exit, err
}

// follow passes the output on until the process has ended. The client's window
// holds it up.
func (s *session) follow(proc *guest.Process) (*guest.Exit, error) {
	stderr := s.ch.Stderr()
	for {
		e, err := proc.Recv()
		if err != nil {
			return nil, err
		}
		if e.Exit != nil {
			return e.Exit, nil
		}
		s.c.s.Sandboxes.Touch(s.c.id)
		switch {
		case len(e.Stderr) > 0:
			_, err = stderr.Write(e.Stderr)
		case len(e.PTY) > 0:
			_, err = s.ch.Write(e.PTY)
		default:
			_, err = s.ch.Write(e.Stdout)
		}
		if err != nil {
			s.gone() // and the rest is read to nowhere until it has ended
		}
	}
}

// hangUp ends a process whose client has left, as the end of a terminal line does:
// with SIGHUP, and when that does not end it in time, with SIGKILL for it and all
// that it started. It returns at the latest when that time is over too.
func hangUp(ctx context.Context, client *guest.Client, proc *guest.Process, over <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hupGrace+killWithin)
	defer cancel()
	grace, done := context.WithTimeout(ctx, hupGrace)
	defer done()
	for _, name := range []string{"SIGHUP", "SIGCONT"} { // what is stopped could not end
		if sig, ok := guest.ParseSignal(name); ok {
			_ = client.SignalTree(grace, proc.PID(), sig) // it may have ended by itself
		}
	}
	select {
	case <-over:
		return
	case <-grace.Done():
	}
	_ = client.KillTree(ctx, proc.PID()) // as above, or the sandbox is gone
	select {
	case <-over:
	case <-ctx.Done():
	}
	proc.Close()
}

// touching is the input of a session, each read of which is a use.
type touching struct {
	r io.Reader
	c *conn
}

func (t *touching) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.c.s.Sandboxes.Touch(t.c.id)
	}
	return n, err
}
