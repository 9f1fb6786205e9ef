package cli

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

// doc is what the help says of a command. How many arguments it takes is read
// from use: a word in brackets may be left out, and one with dots may be repeated.
type doc struct {
	use, short, long, example string
	aliases                   []string
}

// call is one run of a command whose first argument is a sandbox.
type call struct {
	app  *app
	cmd  *cobra.Command
	ctx  context.Context
	sb   *client.Sandbox
	args []string // after the sandbox's id
}

// arg gives an argument, "" when it was left out.
func (c call) arg(n int) string {
	if n < len(c.args) {
		return c.args[n]
	}
	return ""
}

// user is the flag of a group whose calls are made for a user.
func (c call) user() string {
	user, _ := c.cmd.Flags().GetString("user") // "" in a group that has no such flag
	return user
}

// files is the sandbox's filesystem for the user of --user.
func (c call) files() client.Files { return c.sb.As(c.user()) }

// input opens the file that an argument names, or standard input where it is - or
// left out.
func (c call) input(n int) (io.ReadCloser, error) {
	name := c.arg(n)
	if name == "" || name == "-" {
		return io.NopCloser(c.app.stdin), nil
	}
	f, err := os.Open(name)
	return f, fileError(err)
}

// inSandbox makes a command whose first argument is a sandbox.
func inSandbox(a *app, d doc, run func(call) error) *cobra.Command {
	return &cobra.Command{
		Use: d.use, Aliases: d.aliases, Short: d.short, Long: d.long, Example: d.example,
		Args: argsOf(d.use),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			return run(call{a, cmd, cmd.Context(), sb, args[1:]})
		},
	}
}

// ask makes a command that makes one call on a sandbox and shows the answer: as
// it came with -o json, else as show does. What has no show prints nothing then.
func ask[T any](a *app, d doc, do func(call) (T, error), show func(*app, T) error) *cobra.Command {
	return inSandbox(a, d, func(c call) error {
		out, err := do(c)
		switch {
		case err != nil:
			return err
		case a.output == "json":
			return a.printJSON(out)
		case show == nil:
			return nil
		}
		return show(a, out)
	})
}

// forEach makes a command that does something to each of its arguments after the
// first ones, as eachNamed does.
func forEach(a *app, d doc, key string, first int, do func(c call, name string) error) *cobra.Command {
	return inSandbox(a, d, func(c call) error {
		return a.eachOf(c.ctx, key, c.args[first:], func(name string) error { return do(c, name) })
	})
}

// argsOf reads from a Use line how many arguments a command takes.
func argsOf(use string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, word := range strings.Fields(use)[1:] {
		switch {
		case word == "[flags]" || word == "--":
			continue
		case strings.HasSuffix(strings.TrimSuffix(word, "]"), "..."):
			most = -1
		case most >= 0:
			most++
		}
		if !strings.HasPrefix(word, "[") {
			least++
		}
	}
	return args(least, most)
}

// done is the answer of a call that has none, for -o json.
type done struct {
	Path string `json:"path,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}
