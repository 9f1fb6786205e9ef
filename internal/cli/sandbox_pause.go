package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

func newSandboxPause(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "pause ID...",
		Short:   "Stop every process of sandboxes where it stands",
		Long:    "Stop every process of sandboxes where it stands. Memory stays on the host.",
		Example: `  pandastack sandbox pause k3v9x0q2m7c1b8n4t6zd`,
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(sb *client.Sandbox) error { return sb.Pause(cmd.Context()) })
		},
	}
}
