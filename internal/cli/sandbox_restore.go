package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newSandboxRestore(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "restore ID [CHECKPOINT]",
		Short: "Take a sandbox back to a checkpoint",
		Long: `Take a sandbox back to a checkpoint of its own, by id or name, with the same id
and address; without CHECKPOINT to the newest. What happened since is lost unless
another checkpoint has it. If it fails the sandbox is as before.`,
		Example: `  pandastack sandbox restore k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox restore k3v9x0q2m7c1b8n4t6zd before-step-3`,
		Args: args(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			checkpoint := ""
			if len(args) > 1 {
				checkpoint = args[1]
			}
			if err := sb.Restore(cmd.Context(), checkpoint); err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(sb.Sandbox)
			}
			if isTerminal(a.stderr) {
				fmt.Fprintf(a.stderr, "back at %s in %.1f ms\n", printable(sb.SnapshotID), sb.BootMS)
			}
			_, err = fmt.Fprintln(a.stdout, sb.ID)
			return err
		},
	}
}
