package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSandboxProcess(a *app) *cobra.Command {
	cmd := group("process", "Start, follow, feed and end processes of a sandbox", `Start, follow, feed and end the processes of a sandbox that were started through
the API, whoever started them. PROCESS is the number of one or its tag.`)
	cmd.Aliases = []string{"processes", "ps"}
	cmd.Example = `  pandastack sandbox process start $id --tag web -- python3 -m http.server 8000
  pandastack sandbox process list $id
  pandastack sandbox process attach $id web
  pandastack sandbox process kill $id web`
	cmd.AddCommand(
		newProcessStart(a), newProcessList(a), newProcessAttach(a), newProcessSignal(a), newProcessStdin(a),
		forEach(a, doc{
			use:     "kill ID PROCESS...",
			short:   "End processes and all that they started",
			long:    "End processes and all that they started. What was ended is printed.",
			example: "  pandastack sandbox process kill $id web 42",
		}, "process", 0, func(c call, name string) error { return c.sb.Tagged(name).Kill(c.ctx) }),
		forEach(a, doc{
			use:     "close-stdin ID PROCESS...",
			short:   "Give processes end of file",
			example: "  pandastack sandbox process close-stdin $id reader",
		}, "process", 0, func(c call, name string) error { return c.sb.Tagged(name).CloseStdin(c.ctx) }),
	)
	return cmd
}

func newProcessStart(a *app) *cobra.Command {
	var o execOptions
	var in api.Exec
	cmd := ask(a, doc{
		use:   "start ID [flags] -- COMMAND [ARG...]",
		short: "Start a command in the background and print its number",
		long: `Start a command in the background and print its number. It runs on when this
program has ended; "process attach" shows the last of its output and what follows.

A COMMAND with arguments is run as it is; one alone is a line for the shell.`,
		example: `  pandastack sandbox process start $id --tag web -- python3 -m http.server 8000
  pandastack sandbox process start $id --tag reader --keep-stdin -- 'while read x; do echo got $x; done'`,
	}, func(c call) (*api.ExecResult, error) {
		argv, err := commandLine(c.cmd, append([]string{c.sb.ID}, c.args...), 1)
		if err != nil {
			return nil, err
		}
		if in.Env, err = pairs(c.cmd, "env", o.env, a.getenv); err != nil {
			return nil, err
		}
		if in.Cmd = client.Argv(argv[0], argv[1:]...); len(argv) == 1 {
			in.Cmd = client.Line(argv[0])
		}
		in.Background, in.Cwd, in.User, in.TimeoutSeconds = true, o.cwd, o.user, o.timeout.Seconds()
		return c.sb.ExecWith(c.ctx, in)
	}, func(a *app, r *api.ExecResult) error { return a.printLine(strconv.Itoa(r.PID)) })
	o.addFlags(cmd)
	f := cmd.Flags()
	f.Lookup("interactive").Hidden = true
	f.StringArrayVarP(&o.env, "env", "e", nil, "environment as KEY=VALUE, or KEY to pass on this shell's; may be repeated")
	f.StringVar(&in.Tag, "tag", "", "name to find it by, beside its number")
	f.BoolVar(&in.KeepStdin, "keep-stdin", false, `leave its input open, for "process stdin"`)
	return cmd
}

func newProcessList(a *app) *cobra.Command {
	var all bool
	cmd := ask(a, doc{
		use: "list ID [flags]", aliases: []string{"ls"},
		short: "List processes that were started through the API",
		example: `  pandastack sandbox process list $id
  pandastack sandbox process list $id --all -o json | jq '.processes[].exit_code'`,
	}, func(c call) (api.ProcessList, error) {
		list, err := c.sb.Processes(c.ctx, all)
		return api.ProcessList{Processes: list}, err
	}, func(a *app, l api.ProcessList) error {
		t := table{headings: []string{"PID", "TAG", "USER", "STATE", "STARTED", "COMMAND"}}
		for _, p := range l.Processes {
			t.add(strconv.Itoa(p.PID), p.Tag, p.User, processState(p), p.StartedAt.UTC().Format(time.RFC3339),
				strings.Join(append([]string{p.Cmd}, p.Args...), " "))
		}
		return t.print(a)
	})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that ended within the last hour")
	return cmd
}

func processState(p api.Process) string {
	switch {
	case p.EndedAt == nil:
		return "running"
	case p.Signal != "":
		return p.Signal
	case p.ExitCode != nil:
		return fmt.Sprintf("exit %d", *p.ExitCode)
	}
	return "ended"
}

func newProcessAttach(a *app) *cobra.Command {
	var now bool
	cmd := inSandbox(a, doc{
		use:   "attach ID PROCESS [flags]",
		short: "Follow a process, and end with its exit code",
		long: `Follow a process, beginning with the last of its output, and end with its exit
code. It goes on when this program is interrupted. One that ended within the last
hour shows what is kept of its output.`,
		example: `  pandastack sandbox process attach $id web
  pandastack sandbox process attach $id 42 --now -o json`,
	}, func(c call) error {
		ended := false
		for ev, err := range c.sb.Tagged(c.args[0]).Follow(c.ctx, !now) {
			if err == nil {
				err = a.showProcess(ev)
			}
			if err != nil {
				return err
			}
			ended = ev.Type == "exit"
		}
		if !ended {
			return api.Errorf(api.CodeServerUnreachable, "the server ended the stream before the process ended").
				WithHint("The process may still run; attach to it again.")
		}
		return nil
	})
	cmd.Flags().BoolVar(&now, "now", false, "only what it writes from now on")
	return cmd
}

// showProcess shows an event of a process; its end is the error that ends this
// program with the same code.
func (a *app) showProcess(ev api.ExecEvent) error {
	if a.output == "json" {
		if err := a.printJSONLine(ev); err != nil {
			return err
		}
	}
	switch {
	case ev.Type == "exit" && ev.Result != nil && ev.Result.ExitCode != 0:
		return &client.ExitError{Result: *ev.Result}
	case a.output == "json":
		return nil
	case ev.Skipped > 0:
		a.note("%s of earlier output are not kept", bytesText(ev.Skipped))
	case ev.Type == "stdout":
		_, err := a.stdout.Write(ev.Data)
		return err
	case ev.Type == "stderr":
		_, err := a.stderr.Write(ev.Data)
		return err
	}
	return nil
}

func newProcessSignal(a *app) *cobra.Command {
	var tree bool
	cmd := forEach(a, doc{
		use:   "signal ID SIGNAL PROCESS... [flags]",
		short: "Send processes a signal",
		long:  "Send processes a signal, by name or number. What it was sent to is printed.",
		example: `  pandastack sandbox process signal $id INT 42
  pandastack sandbox process signal $id SIGHUP web --tree`,
	}, "process", 1, func(c call, name string) error {
		sig, err := signalOf(c.args[0])
		if err != nil {
			return usageError{c.cmd, err}
		}
		return c.sb.Tagged(name).Signal(c.ctx, sig, tree)
	})
	cmd.Flags().BoolVar(&tree, "tree", false, "also to all that descends from them")
	return cmd
}

// signalOf reads a signal: its name with or without SIG, or its number.
func signalOf(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("there is no signal %q", s)
}

func newProcessStdin(a *app) *cobra.Command {
	var end bool
	cmd := inSandbox(a, doc{
		use:   "stdin ID PROCESS [FILE] [flags]",
		short: "Write to a process's input",
		long: `Write FILE, or standard input, to the input of a process that was started with its
input kept open, as fast as it reads.`,
		example: `  echo hello | pandastack sandbox process stdin $id reader
  pandastack sandbox process stdin $id reader data.csv --close`,
	}, func(c call) error {
		in, err := c.input(1)
		if err != nil {
			return err
		}
		defer in.Close()
		// The transport closes what it reads, and standard input is not its own.
		return c.sb.Tagged(c.args[0]).Feed(c.ctx, struct{ io.Reader }{in}, end)
	})
	cmd.Flags().BoolVar(&end, "close", false, "give it end of file after that")
	return cmd
}
