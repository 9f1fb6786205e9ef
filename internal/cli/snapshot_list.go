package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func newSnapshotList(a *app) *cobra.Command {
	query := client.SnapshotListOptions{Kind: api.KindSnapshot}
	var checkpoints, quiet bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"},
		Short: "List snapshots, newest first",
		Long:  `List snapshots, newest first. Checkpoints are left out unless --checkpoints is given.`,
		Example: `  pandastack snapshot list
  pandastack snapshot list --sandbox k3v9x0q2m7c1b8n4t6zd --checkpoints`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if checkpoints {
				query.Kind = ""
			}
			return runSnapshotList(cmd, a, query, quiet)
		},
	}
	f := cmd.Flags()
	f.StringVar(&query.SandboxID, "sandbox", "", "only those taken of this sandbox, which may be gone")
	f.BoolVar(&checkpoints, "checkpoints", false, "checkpoints too")
	f.BoolVarP(&quiet, "quiet", "q", false, "ids only")
	return cmd
}

func runSnapshotList(cmd *cobra.Command, a *app, query client.SnapshotListOptions, quiet bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	out := api.SnapshotList{Snapshots: []api.Snapshot{}}
	for s, err := range c.Snapshots.List(cmd.Context(), query) {
		if err != nil {
			return err
		}
		out.Snapshots = append(out.Snapshots, s)
	}
	if a.output == "json" {
		return a.printJSON(out)
	}
	t := table{headings: []string{"ID", "NAME", "KIND", "HOLDS", "SANDBOX", "TEMPLATE", "SIZE", "STORED", "CREATED"}}
	if quiet {
		t.headings = t.headings[:1]
	}
	for _, s := range out.Snapshots {
		row := []string{s.ID, s.Name, string(s.Kind), holdsText(s), s.SandboxID, s.Template,
			bytesText(s.SizeBytes), storedText(s), ago(s.CreatedAt)}
		t.add(row[:len(t.headings)]...)
	}
	return t.print(a)
}
