package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

type logsOptions struct {
	follow   bool
	noFollow bool
	tail     int
	stream   string
}

func newSandboxLogs(a *app) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs ID [flags]",
		Short: "Show what processes in a sandbox wrote",
		Long: `Show what processes in a sandbox wrote, and go on until interrupted.

With --no-follow it ends with what there is. While it follows, what processes
wrote to standard error goes to standard error.`,
		Example: `  pandastack sandbox logs k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox logs k3v9x0q2m7c1b8n4t6zd --no-follow --tail 100 --stream stderr`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxLogs(cmd, a, o, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", true, "go on with new lines")
	f.BoolVar(&o.noFollow, "no-follow", false, "end with what there is")
	f.IntVarP(&o.tail, "tail", "n", 0, "only the last so many lines (default all)")
	f.StringVar(&o.stream, "stream", "both", "stdout, stderr or both")
	return cmd
}

func runSandboxLogs(cmd *cobra.Command, a *app, o logsOptions, id string) error {
	if o.stream != "stdout" && o.stream != "stderr" && o.stream != "both" {
		return usagef(cmd, "--stream is stdout, stderr or both, not %q", o.stream)
	}
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	query := client.LogOptions{Tail: o.tail, Stream: o.stream, Follow: o.follow && !o.noFollow}
	for line, err := range sb.Logs(cmd.Context(), query) {
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = a.printJSONLine(line)
		} else {
			var w io.Writer = a.stdout
			if line.Stream == "stderr" {
				w = a.stderr
			}
			text := line.Line
			if isTerminal(w) {
				text = printable(text)
			}
			_, err = fmt.Fprintln(w, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
