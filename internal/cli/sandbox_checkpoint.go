package cli

import (
	"github.com/spf13/cobra"
)

func newSandboxCheckpoint(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "checkpoint ID [flags]",
		Short: "Note a sandbox as it is now, to go back to, and print the checkpoint's id",
		Long: `Note a sandbox as it is now on its timeline and print the checkpoint's id. The
sandbox goes on; "sandbox restore" takes it back to here. Checkpoints go with
their sandbox, and by its policy: see "sandbox checkpoints".`,
		Example: `  pandastack sandbox checkpoint k3v9x0q2m7c1b8n4t6zd --name before-step-3`,
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			s, err := sb.Checkpoint(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.showTaken(s)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name to find it by, unique within the sandbox")
	return cmd
}
