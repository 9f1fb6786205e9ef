package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// terminalKinds are the terminals that every image can be expected to know; any
// other is announced as xterm-256color, which nearly all of them understand.
var terminalKinds = []string{"xterm", "xterm-256color", "screen", "screen-256color", "tmux", "tmux-256color", "linux", "vt100", "vt220", "rxvt", "ansi"}

type shellOptions struct {
	user, cwd, tag string
	pid            int
}

func newSandboxShell(a *app) *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell ID [flags] [-- COMMAND [ARG...]]",
		Short: "Open a terminal in a sandbox",
		Long: `Open a terminal in a sandbox and end with the exit code of what ran in it: the
user's shell, or COMMAND.

~. at the beginning of a line detaches: the shell goes on, and --pid, or the --tag
it was started with, attaches to it again, beginning with the last of what it has
shown. ~~ sends one ~. When the connection is lost the shell goes on as well.`,
		Example: `  pandastack sandbox shell $id
  pandastack sandbox shell $id --tag work
  pandastack sandbox shell $id --user root -- top`,
		Args: args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			line := ""
			if len(args) > 1 {
				argv, err := commandLine(cmd, args, 1)
				if err != nil {
					return err
				}
				line = shellLine(argv)
			}
			return runSandboxShell(cmd.Context(), a, o, args[0], line)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.user, "user", "u", "", "user to run it as (default: user)")
	f.StringVarP(&o.cwd, "cwd", "w", "", "directory to run it in (default: the user's home)")
	f.StringVar(&o.tag, "tag", "", "attach to the terminal with this tag, or start it")
	f.IntVar(&o.pid, "pid", 0, "attach to the terminal of this process")
	return cmd
}

func runSandboxShell(ctx context.Context, a *app, o shellOptions, id, line string) error {
	stdin, ok := a.stdin.(*os.File)
	stdout, tty := a.stdout.(*os.File)
	if !ok || !tty || !isTerminal(stdin) || !isTerminal(stdout) {
		return api.Errorf(api.CodeInvalidRequest, "a shell needs a terminal, and standard input or output is none").
			WithHint("Run the command with `pandastack sandbox exec` instead.")
	}
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	in := client.TerminalOptions{Line: line, Dir: o.cwd, User: o.user, Tag: o.tag, PID: o.pid}
	if kind := a.getenv("TERM"); slices.Contains(terminalKinds, kind) {
		in.Term = kind
	}
	if in.Cols, in.Rows, err = term.GetSize(int(stdout.Fd())); err != nil {
		in.Cols, in.Rows = 0, 0 // the server's default
	}
	t, err := sb.Terminal(ctx, in)
	if err != nil {
		return err
	}
	defer t.Close()
	detached, err := showTerminal(ctx, t, stdin, stdout)
	again := fmt.Sprintf("pandastack sandbox shell %s --pid %d", id, t.PID)
	var coded *api.Error
	switch {
	case detached:
		fmt.Fprintf(a.stderr, "detached; attach again with: %s\n", again)
		return nil
	case errors.As(err, &coded) && coded.Code == api.CodeServerUnreachable:
		return coded.WithHint("The shell may still run; attach again with `" + again + "`.")
	case err != nil:
		return err
	case t.Result() != nil && t.Result().ExitCode != 0:
		return &client.ExitError{Result: *t.Result()}
	}
	return nil
}

// showTerminal connects this program's terminal to the sandbox's until that has
// ended, the person has detached or ctx has ended, and leaves it as it was.
func showTerminal(ctx context.Context, t *client.Terminal, stdin, stdout *os.File) (detached bool, err error) {
	before, err := term.MakeRaw(int(stdin.Fd()))
	if err != nil {
		return false, api.Wrap(api.CodeInternal, err, "the terminal cannot be set up")
	}
	defer func() { _ = term.Restore(int(stdin.Fd()), before) }() // nothing more can be done for it
	defer context.AfterFunc(ctx, func() { t.Close() })()
	defer watchSize(func() {
		if cols, rows, err := term.GetSize(int(stdout.Fd())); err == nil {
			_ = t.Resize(rows, cols) // a connection that is gone is seen by the reader
		}
	})()
	var left atomic.Bool
	go func() { // it ends with the program: a read of a terminal cannot be given up
		if typeInto(t, stdin) {
			left.Store(true)
			t.Close()
		}
	}()
	_, err = io.Copy(stdout, t)
	if ctx.Err() != nil && !left.Load() {
		return false, ctx.Err()
	}
	return left.Load(), err
}

// typeInto passes on what is typed, and reports whether the person detached.
func typeInto(t io.Writer, stdin io.Reader) (detached bool) {
	keys := escapes{start: true}
	buf := make([]byte, 4<<10)
	for {
		n, err := stdin.Read(buf)
		out, detach := keys.filter(buf[:n])
		if len(out) > 0 {
			if _, err := t.Write(out); err != nil {
				return false // the reader sees it too
			}
		}
		if detach {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// escapes finds ~. and ~~ at the beginning of a line.
type escapes struct {
	start bool // of a line
	tilde bool // was typed there
}

// filter gives what is to be sent of what was typed, and whether ~. was in it.
func (e *escapes) filter(typed []byte) (send []byte, detach bool) {
	for _, c := range typed {
		if e.tilde {
			e.tilde = false
			switch c {
			case '.':
				return send, true
			case '~':
				e.start = false
				send = append(send, c)
				continue
			}
			send = append(send, '~')
			e.start = false
		}
		if e.start && c == '~' {
			e.tilde = true
			continue
		}
		send = append(send, c)
		e.start = c == '\r' || c == '\n'
	}
	return send, false
}

// shellLine makes one line for a shell of a command: a line alone is as it is.
func shellLine(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	quoted := make([]string, len(argv))
	for i, arg := range argv {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
