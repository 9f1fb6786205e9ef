package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxPromote(a *app) *cobra.Command {
	var in api.Promote
	cmd := &cobra.Command{
		Use:   "promote ID [flags]",
		Short: "Mark a fork as the one to go on with",
		Long: `Mark a fork as the one of its siblings to go on with, and with --cleanup-siblings
delete the others. Siblings are the children of one fork.`,
		Example: `  pandastack sandbox promote k3v9x0q2m7c1b8n4t6zd --cleanup-siblings`,
		Args:    args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.handle(args[0])
			if err != nil {
				return err
			}
			done, err := sb.Promote(cmd.Context(), in)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(done)
			}
			var f fields
			f.add("promoted", done.Sandbox.ID)
			f.add("tree", done.TreeID)
			if in.CleanupSiblings {
				f.add("deleted", strings.TrimSpace(fmt.Sprintf("%d %s", len(done.Deleted), strings.Join(done.Deleted, " "))))
			}
			return f.print(a)
		},
	}
	cmd.Flags().BoolVar(&in.CleanupSiblings, "cleanup-siblings", false, "delete the other children of its fork")
	cmd.Flags().StringVar(&in.TreeID, "tree", "", "fork that it must come from, by the tree_id that the fork answered")
	return cmd
}
