package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxSetTTL(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set-ttl ID TTL",
		Short: "Change how long a sandbox lives",
		Long: `Change how long a sandbox lives, from now on.

TTL is 90s, 15m, 2h, 7d, a number of seconds, or never.`,
		Example: `  pandastack sandbox set-ttl k3v9x0q2m7c1b8n4t6zd 2h
  pandastack sandbox set-ttl k3v9x0q2m7c1b8n4t6zd never`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxSetTTL(cmd, a, args[0], args[1]) },
	}
}

func runSandboxSetTTL(cmd *cobra.Command, a *app, id, ttl string) error {
	var d duration
	if ttl != "never" {
		if err := d.Set(ttl); err != nil {
			return usageError{cmd, err}
		}
	}
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	var l api.Lifecycle
	if ttl == "never" {
		l, err = sb.SetPersistent(cmd.Context(), true)
	} else {
		l, err = sb.SetTTL(cmd.Context(), d.Duration)
	}
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(l)
	}
	var f fields
	if l.ExpiresAt != nil {
		f.add("expires", l.ExpiresAt.UTC().Format(time.RFC3339))
	} else {
		f.add("expires", "never")
	}
	return f.print(a)
}
