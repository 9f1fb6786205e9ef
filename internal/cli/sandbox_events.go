package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

func newSandboxEvents(a *app) *cobra.Command {
	var o client.EventOptions
	cmd := &cobra.Command{
		Use:   "events ID [flags]",
		Short: "Show what happened to a sandbox",
		Long:  "Show what happened to a sandbox, oldest first: number, time, type and details, a line each.",
		Example: `  pandastack sandbox events k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox events k3v9x0q2m7c1b8n4t6zd --follow -o json`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxEvents(cmd, a, o, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with new events until interrupted")
	f.IntVarP(&o.Tail, "tail", "n", 0, "only the last so many (default all)")
	f.Int64Var(&o.Since, "since", 0, "only those after the event of this number")
	return cmd
}

func runSandboxEvents(cmd *cobra.Command, a *app, o client.EventOptions, id string) error {
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	for ev, err := range sb.Events(cmd.Context(), o) {
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = a.printJSONLine(ev)
		} else {
			row := []string{strconv.FormatInt(ev.ID, 10), ev.Time.UTC().Format(time.RFC3339), ev.Type}
			for _, k := range sortedKeys(ev.Data) {
				row = append(row, k+"="+ev.Data[k])
			}
			_, err = fmt.Fprintln(a.stdout, strings.Join(cleanCells(row), "\t"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
