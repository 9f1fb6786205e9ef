package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// jsonOutputLimit bounds what -o json keeps of each stream, as the API's
// buffered call does.
const jsonOutputLimit = 16 << 20

// killAfter is how long a command may take to end after SIGTERM.
const killAfter = 10 * time.Second

// execOptions say how a command runs in a sandbox.
type execOptions struct {
	timeout     duration
	env         []string
	cwd         string
	user        string
	interactive bool
}

func (o *execOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&o.timeout, "timeout", "end the command after this long (default never)")
	f.StringVarP(&o.cwd, "cwd", "w", "", "directory to run it in (default: the user's home)")
	f.StringVarP(&o.user, "user", "u", "", "user to run it as (default: user)")
	f.BoolVarP(&o.interactive, "interactive", "i", false, "pass standard input on even when it is a terminal")
}

// execute runs a command in a sandbox with this program's streams and gives its
// exit code as an error, nil for 0.
func (a *app) execute(cmd *cobra.Command, sb *client.Sandbox, o execOptions, argv []string) error {
	env, err := pairs(cmd, "env", o.env, a.getenv)
	if err != nil {
		return err
	}
	var run *client.Cmd
	if len(argv) == 1 {
		run = sb.ShellCommand(cmd.Context(), argv[0])
	} else {
		run = sb.Command(cmd.Context(), argv[0], argv[1:]...)
	}
	run.Env, run.Dir, run.User, run.Timeout = env, o.cwd, o.user, o.timeout.Duration
	if a.stdin != nil && (o.interactive || !isTerminal(a.stdin)) {
		run.Stdin = a.stdin
	}
	run.Stdout, run.Stderr = a.stdout, a.stderr
	var stdout, stderr boundedBuffer
	if a.output == "json" {
		run.Stdout, run.Stderr = &stdout, &stderr
	}
	err = a.runPassingSignals(cmd.Context(), run)
	if code, why := notRun(err); code != 0 {
		fmt.Fprintf(run.Stderr, "%s: %s\n", argv[0], why)
		run.Result = &api.ExecResult{ExitCode: code}
		err = &client.ExitError{Result: *run.Result}
	}
	var exit *client.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	if a.output == "json" {
		r := *run.Result
		r.Stdout, r.Stderr = stdout.String(), stderr.String()
		r.Truncated = stdout.cut || stderr.cut
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else if exit != nil && exit.Result.TimedOut {
		fmt.Fprintf(a.stderr, "%s the command did not end within %s\n", a.paint(a.stderr, red, "error:"), o.timeout.Duration)
	}
	return err
}

// notRun gives the exit code and the words of a shell for a program that does
// not exist or is no program: that is an outcome of the command, not a failure
// of this program.
func notRun(err error) (code int, why string) {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeProcessInvalid {
		return 0, ""
	}
	switch e.Details["errno"] {
	case "ENOENT":
		return 127, "not found"
	case "EACCES":
		return 126, "permission denied"
	}
	return 0, ""
}

// runPassingSignals runs a command. Until it has ended the first interrupt of
// this program is a SIGTERM for the command, later ones a SIGKILL; it gets one
// as well when it takes too long over the first.
func (a *app) runPassingSignals(ctx context.Context, run *client.Cmd) error {
	if err := run.Start(); err != nil {
		return err
	}
	// Signals are sent in their order by one goroutine: the handler must not
	// wait for the network.
	ended := make(chan struct{})
	caught := make(chan syscall.Signal, 8)
	sent := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(sent)
		sendSignals(ctx, run.Process, caught, ended)
	}()
	var count atomic.Int32
	restore := a.signals.take(func(os.Signal) {
		sig := syscall.SIGKILL
		if count.Add(1) == 1 {
			sig = syscall.SIGTERM
		}
		select {
		case caught <- sig:
		default: // there are plenty already
		}
	})
	err := run.Wait()
	restore()
	close(ended)
	cancel()
	<-sent
	return err
}

func sendSignals(ctx context.Context, p *client.Process, caught <-chan syscall.Signal, ended <-chan struct{}) {
	var overdue <-chan time.Time
	for {
		sig := syscall.SIGKILL
		select {
		case <-ended:
			return
		case <-overdue:
		case sig = <-caught:
		}
		// A command that has just ended cannot be signalled, which is no
		// failure; a connection that has gone is Wait's to report.
		_ = p.Signal(ctx, sig)
		if sig == syscall.SIGTERM {
			overdue = time.After(killAfter)
		}
	}
}

// boundedBuffer keeps the first bytes written to it.
type boundedBuffer struct {
	bytes.Buffer
	cut bool
}

// Write implements io.Writer; it never fails.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := jsonOutputLimit - b.Len(); len(p) > room {
		b.cut = true
		b.Buffer.Write(p[:room])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// commandLine gives the command after `--`, or what follows the first n
// arguments.
func commandLine(cmd *cobra.Command, given []string, n int) ([]string, error) {
	dash := cmd.ArgsLenAtDash()
	if dash > n {
		return nil, usagef(cmd, "%q stands before --; the command goes after it", given[n])
	}
	if len(given) <= n || given[n] == "" && len(given) == n+1 {
		return nil, usagef(cmd, "there is no command to run")
	}
	return given[n:], nil
}
