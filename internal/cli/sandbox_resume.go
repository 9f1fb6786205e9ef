package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

func newSandboxResume(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "resume ID...",
		Short:   "Let paused sandboxes go on",
		Example: `  pandastack sandbox resume k3v9x0q2m7c1b8n4t6zd`,
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(sb *client.Sandbox) error { return sb.Resume(cmd.Context()) })
		},
	}
}
