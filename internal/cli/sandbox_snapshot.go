package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxSnapshot(a *app) *cobra.Command {
	var in api.CreateSnapshot
	var metadata []string
	var filesOnly bool
	cmd := &cobra.Command{
		Use:   "snapshot ID [flags]",
		Short: "Keep a sandbox as it is now, and print the snapshot's id",
		Long: `Keep a sandbox as it is now, with its memory, processes, open files and disk, and
print the snapshot's id. The sandbox goes on running. Sandboxes start from the
snapshot with "sandbox create --from-snapshot", also when this one is gone.

With --files-only it holds files alone: what starts from it starts cold, and does
so under any version of the runtime.`,
		Example: `  pandastack sandbox snapshot k3v9x0q2m7c1b8n4t6zd --name warm
  snap=$(pandastack sandbox snapshot k3v9x0q2m7c1b8n4t6zd --files-only)`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Metadata, err = pairs(cmd, "metadata", metadata, nil); err != nil {
				return err
			}
			if filesOnly {
				memory := false
				in.Memory = &memory
			}
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			s, err := sb.Snapshot(cmd.Context(), in)
			if err != nil {
				return err
			}
			return a.showTaken(s)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Name, "name", "", "name to find it by")
	f.BoolVar(&filesOnly, "files-only", false, "without memory and processes")
	f.StringArrayVarP(&metadata, "metadata", "m", nil, "label as KEY=VALUE; may be repeated")
	return cmd
}

// showTaken prints the id of a snapshot or checkpoint that was taken just now.
func (a *app) showTaken(s api.Snapshot) error {
	if a.output == "json" {
		return a.printJSON(s)
	}
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "the sandbox stood still for %.1f ms\n", s.PauseMS)
	}
	_, err := fmt.Fprintln(a.stdout, s.ID)
	return err
}
