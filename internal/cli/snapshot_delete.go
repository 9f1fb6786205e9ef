package cli

import (
	"github.com/spf13/cobra"
)

func newSnapshotDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID|NAME...", Aliases: []string{"rm"},
		Short: "Delete snapshots",
		Long:  "Delete snapshots. Sandboxes that were made from them go on. What was deleted is printed.",
		Example: `  pandastack snapshot delete warm
  pandastack snapshot list -q | xargs pandastack snapshot delete`,
		Args: args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.eachNamed(cmd.Context(), args, func(id string) error { return c.Snapshots.Delete(cmd.Context(), id) })
		},
	}
}
