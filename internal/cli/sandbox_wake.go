package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

func newSandboxWake(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "wake ID...",
		Short:   "Wake hibernated sandboxes ahead of the request that would",
		Example: `  pandastack sandbox wake k3v9x0q2m7c1b8n4t6zd`,
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(sb *client.Sandbox) error { return sb.Wake(cmd.Context()) })
		},
	}
}
