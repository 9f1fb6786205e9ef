package cli

import (
	"github.com/spf13/cobra"
)

func newSandboxGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a sandbox",
		Example: `  pandastack sandbox get k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox get k3v9x0q2m7c1b8n4t6zd -o json | jq -r .status`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			sb, err := c.Sandboxes.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showSandbox(sb.Sandbox)
		},
	}
}
