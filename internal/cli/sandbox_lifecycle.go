package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxLifecycle(a *app) *cobra.Command {
	return ask(a, doc{
		use:   "lifecycle ID",
		short: "Show how long a sandbox lives",
		long: `Show how long a sandbox lives, after how long without use it goes to sleep, and
which of its checkpoints are kept. "set-ttl", "set-idle" and "checkpoints" change it.
A sandbox that sleeps is not woken.`,
		example: "  pandastack sandbox lifecycle $id -o json | jq -r .expires_at",
	}, func(c call) (api.Lifecycle, error) { return c.sb.Lifecycle(c.ctx) }, func(a *app, l api.Lifecycle) error {
		var f fields
		if l.ExpiresAt != nil {
			f.add("expires", l.ExpiresAt.UTC().Format(time.RFC3339))
		} else {
			f.add("expires", "never")
		}
		if l.Idle != nil {
			f.add("idle", idleText(*l.Idle))
		}
		if l.Checkpoints != nil {
			f.add("checkpoints", policyText(*l.Checkpoints))
		}
		return f.print(a)
	})
}

func newSandboxDeleteCheckpoint(a *app) *cobra.Command {
	return forEach(a, doc{
		use:   "delete-checkpoint ID CHECKPOINT...",
		short: "Remove checkpoints from a sandbox's timeline",
		long: `Remove checkpoints, named by id or name, from a sandbox's timeline. What was removed
is printed.`,
		example: "  pandastack sandbox delete-checkpoint $id before-upgrade",
	}, "checkpoint", 0, func(c call, name string) error { return c.sb.DeleteCheckpoint(c.ctx, name) })
}
