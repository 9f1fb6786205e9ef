package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

func newSandboxDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID...", Aliases: []string{"rm", "kill"},
		Short: "End sandboxes and all in them",
		Long:  "End sandboxes and all in them. The id of each that was deleted is printed.",
		Example: `  pandastack sandbox delete k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox list -q | xargs pandastack sandbox delete`,
		Args: args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(sb *client.Sandbox) error { return sb.Delete(cmd.Context()) })
		},
	}
}
