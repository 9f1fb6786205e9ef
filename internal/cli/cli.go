// Package cli is the command line: one file a command, each with its options,
// its flags and its run function. Commands write results to standard output
// and everything else to standard error, and end with the codes of the table in
// exitcodes.go.
//
// Output rules. On a terminal lists are tables with headings; in a pipe they
// are lines of tab-separated fields without headings. With -o json results are
// the API's own JSON, and a failure is its error envelope on standard error.
// Failures are `error: message`, and where there is advice `hint: advice`.
package cli

import (
	"context"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// app is one call of the program: its streams and the flags of all commands.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	signals        *signals

	output  string // text or json
	noColor bool
	baseURL string
}

// Main runs the program with its arguments (without its name) and gives its
// exit code. It handles SIGINT and SIGTERM itself: the first asks the command to
// stop, or is passed on to the one that runs in a sandbox; the second ends the
// program. The end of ctx counts as the first.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	parent := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	defer cancel()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, output: outputOf(args)}
	a.signals = catchSignals(parent, cancel)
	defer a.signals.stop()
	root := newRoot(a)
	root.SetArgs(args)
	return a.exit(ctx, root.ExecuteContext(ctx))
}

// outputOf finds -o json before flags are parsed, so that an error in parsing
// them is printed in the form that was asked for.
func outputOf(args []string) string {
	for i, arg := range args {
		switch {
		case arg == "--":
			return "text"
		case arg == "-ojson", arg == "-o=json", arg == "--output=json",
			(arg == "-o" || arg == "--output") && i+1 < len(args) && args[i+1] == "json":
			return "json"
		}
	}
	return "text"
}

func newRoot(a *app) *cobra.Command {
	root := group("pandastack", "Run code nobody has reviewed in isolated sandboxes",
		`PandaStack runs code nobody has reviewed in isolated sandboxes on machines you own.

The server and the key are taken from PANDASTACK_API and PANDASTACK_API_KEY (or
PANDASTACK_TOKEN), else from ~/.config/pandastack/config.json, which
`+"`pandastack auth login`"+` writes; without either the server is `+client.DefaultBaseURL+`.`)
	root.Example = `  # run something at once; needs root, but no server
  sudo pandastack run -- python3 -c 'print(6*7)'

  # start a server, then use it
  sudo pandastack server --data-dir /var/lib/pandastack
  export PANDASTACK_API_KEY=$(sudo cat /var/lib/pandastack/admin.key)
  id=$(pandastack sandbox create)
  pandastack sandbox exec $id -- uname -a`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd, err} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if a.output != "text" && a.output != "json" {
			return usagef(cmd, "--output is text or json, not %q", a.output)
		}
		return nil
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&a.output, "output", "o", a.output, "form of results: text or json")
	flags.Lookup("output").DefValue = "text"
	flags.BoolVar(&a.noColor, "no-color", false, "no colours on a terminal (NO_COLOR does the same)")
	flags.StringVar(&a.baseURL, "api", "", "address of the server, such as "+client.DefaultBaseURL)
	root.AddCommand(commands(a)...)
	return root
}

// configFile is where `auth login` keeps the server and the key.
func (a *app) configFile() (string, error) {
	home := a.getenv("HOME")
	if home == "" {
		return "", api.Errorf(api.CodeInvalidRequest, "HOME is not set, so there is no place for a config file").
			WithHint("Set HOME, or use PANDASTACK_API and PANDASTACK_API_KEY.")
	}
	return filepath.Join(home, ".config", "pandastack", "config.json"), nil
}

// options finds the server and the key.
func (a *app) options() (client.Options, error) {
	file := ""
	if a.getenv("HOME") != "" {
		file, _ = a.configFile()
	}
	o, err := client.Discover(a.getenv, file)
	if a.baseURL != "" {
		o.BaseURL = a.baseURL
	}
	o.UserAgent = "pandastack-cli/" + version()
	return o, err
}

// client makes a client of the server that was chosen.
func (a *app) client() (*client.Client, error) {
	o, err := a.options()
	if err != nil {
		return nil, err
	}
	return client.New(o)
}
