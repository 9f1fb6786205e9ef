package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

type checkpointsOptions struct {
	keepLast int
	maxAge   duration
}

func newSandboxCheckpoints(a *app) *cobra.Command {
	var o checkpointsOptions
	cmd := &cobra.Command{
		Use:   "checkpoints ID [flags]",
		Short: "Show a sandbox's timeline, and say what to keep of it",
		Long: `Show the checkpoints of a sandbox, oldest first. The one that it goes on from is
marked with *.

--keep-last and --max-age set which checkpoints are removed by themselves; 0 keeps
all. The one that the sandbox goes on from stays.`,
		Example: `  pandastack sandbox checkpoints k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox checkpoints k3v9x0q2m7c1b8n4t6zd --keep-last 20 --max-age 2h`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxCheckpoints(cmd, a, o, args[0]) },
	}
	cmd.Flags().IntVar(&o.keepLast, "keep-last", 0, "from now on keep only so many")
	cmd.Flags().Var(&o.maxAge, "max-age", "from now on keep none that is older")
	return cmd
}

func runSandboxCheckpoints(cmd *cobra.Command, a *app, o checkpointsOptions, id string) error {
	if o.keepLast < 0 {
		return usagef(cmd, "--keep-last may not be negative")
	}
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	timeline, err := sb.Checkpoints(cmd.Context())
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("keep-last") || cmd.Flags().Changed("max-age") {
		if timeline, err = o.setPolicy(cmd, sb, timeline.Policy); err != nil {
			return err
		}
	}
	return a.showTimeline(timeline)
}

// setPolicy changes what the flags name of a sandbox's policy, and gives the
// timeline after that.
func (o *checkpointsOptions) setPolicy(cmd *cobra.Command, sb *client.Sandbox, policy api.CheckpointPolicy) (api.Timeline, error) {
	if cmd.Flags().Changed("keep-last") {
		policy.KeepLast = o.keepLast
	}
	if cmd.Flags().Changed("max-age") {
		policy.MaxAgeSeconds = o.maxAge.seconds()
	}
	if _, err := sb.SetLifecycle(cmd.Context(), api.Lifecycle{Checkpoints: &policy}); err != nil {
		return api.Timeline{}, err
	}
	return sb.Checkpoints(cmd.Context())
}

func (a *app) showTimeline(timeline api.Timeline) error {
	if a.output == "json" {
		return a.printJSON(timeline)
	}
	t := table{headings: []string{"", "ID", "NAME", "CREATED", "AGE", "SIZE", "STORED", "PAUSE"}}
	for _, c := range timeline.Checkpoints {
		mark := ""
		if c.ID == timeline.Current {
			mark = "*"
		}
		t.add(mark, c.ID, c.Name, c.CreatedAt.UTC().Format(time.RFC3339), ago(c.CreatedAt),
			bytesText(c.SizeBytes), storedText(c), fmt.Sprintf("%.1f ms", c.PauseMS))
	}
	if err := t.print(a); err != nil {
		return err
	}
	if policy := policyText(timeline.Policy); policy != "" && isTerminal(a.stdout) {
		fmt.Fprintf(a.stderr, "kept: %s\n", policy)
	}
	return nil
}

// policyText says in words which checkpoints are kept; empty is all of them.
func policyText(p api.CheckpointPolicy) string {
	var parts []string
	if p.KeepLast > 0 {
		parts = append(parts, fmt.Sprintf("the last %d", p.KeepLast))
	}
	if p.MaxAgeSeconds > 0 {
		parts = append(parts, "none older than "+(time.Duration(p.MaxAgeSeconds)*time.Second).String())
	}
	return strings.Join(parts, ", ")
}
