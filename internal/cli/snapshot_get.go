package cli

import (
	"github.com/spf13/cobra"
)

func newSnapshotGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID|NAME",
		Short: "Show a snapshot",
		Example: `  pandastack snapshot get warm
  pandastack snapshot get warm -o json | jq .stored_bytes`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			s, err := c.Snapshots.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showSnapshot(s)
		},
	}
}
