package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

func newSandboxHibernate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "hibernate ID...",
		Short: "Put sandboxes to sleep on disk",
		Long: `Put sandboxes to sleep on disk: all of their state is kept and their memory is
freed. The next request for one, such as exec, wakes it.`,
		Example: `  pandastack sandbox hibernate k3v9x0q2m7c1b8n4t6zd`,
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(sb *client.Sandbox) error { return sb.Hibernate(cmd.Context()) })
		},
	}
}
