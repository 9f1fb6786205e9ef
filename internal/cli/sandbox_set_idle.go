package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/api"
)

func newSandboxSetIdle(a *app) *cobra.Command {
	var given api.IdlePolicy
	cmd := &cobra.Command{
		Use:   "set-idle ID TIMEOUT [flags]",
		Short: "Change after how long without use a sandbox goes to sleep",
		Long: `Change after how long without use a sandbox goes to sleep by itself.

TIMEOUT is 90s, 15m, 2h, 7d, a number of seconds, or never. Requests for the
sandbox always count as use; open streams, network traffic and busy processes do
unless a flag says otherwise. What no flag names stays as it was.`,
		Example: `  pandastack sandbox set-idle k3v9x0q2m7c1b8n4t6zd 10m
  pandastack sandbox set-idle k3v9x0q2m7c1b8n4t6zd 10m --ignore-streams --cpu-percent 5
  pandastack sandbox set-idle k3v9x0q2m7c1b8n4t6zd never`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSandboxSetIdle(cmd, a, given, args[0], args[1])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&given.IgnoreStreams, "ignore-streams", false, "an open stream or terminal without a byte does not count")
	f.BoolVar(&given.IgnoreTraffic, "ignore-traffic", false, "its own network traffic does not count")
	f.BoolVar(&given.IgnoreProcesses, "ignore-processes", false, "busy processes do not count")
	f.Float64Var(&given.CPUPercent, "cpu-percent", 0, "more than this of one CPU is busy (default 2)")
	f.Int64Var(&given.TrafficBytes, "traffic-bytes", 0, "more than this in some seconds is traffic (default 1024)")
	return cmd
}

func runSandboxSetIdle(cmd *cobra.Command, a *app, given api.IdlePolicy, id, timeout string) error {
	var d duration
	if timeout != "never" {
		if err := d.Set(timeout); err != nil {
			return usageError{cmd, err}
		}
	}
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	l, err := sb.Lifecycle(cmd.Context())
	if err != nil {
		return err
	}
	var policy api.IdlePolicy
	if l.Idle != nil {
		policy = *l.Idle
	}
	policy.TimeoutSeconds = d.seconds()
	withIdleFlags(cmd, &policy, given)
	if l, err = sb.SetLifecycle(cmd.Context(), api.Lifecycle{Idle: &policy}); err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(l)
	}
	if l.Idle != nil {
		policy = *l.Idle
	}
	var f fields
	f.add("idle", idleText(policy))
	return f.print(a)
}

// withIdleFlags changes what the flags name of a policy.
func withIdleFlags(cmd *cobra.Command, p *api.IdlePolicy, given api.IdlePolicy) {
	for name, set := range map[string]func(){
		"ignore-streams":   func() { p.IgnoreStreams = given.IgnoreStreams },
		"ignore-traffic":   func() { p.IgnoreTraffic = given.IgnoreTraffic },
		"ignore-processes": func() { p.IgnoreProcesses = given.IgnoreProcesses },
		"cpu-percent":      func() { p.CPUPercent = given.CPUPercent },
		"traffic-bytes":    func() { p.TrafficBytes = given.TrafficBytes },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
}

// idleText says in words when a sandbox goes to sleep.
func idleText(p api.IdlePolicy) string {
	if p.TimeoutSeconds == 0 {
		return "never"
	}
	text := "after " + (time.Duration(p.TimeoutSeconds) * time.Second).String()
	var ignored []string
	for _, x := range []struct {
		on   bool
		what string
	}{{p.IgnoreStreams, "streams"}, {p.IgnoreTraffic, "traffic"}, {p.IgnoreProcesses, "processes"}} {
		if x.on {
			ignored = append(ignored, x.what)
		}
	}
	if len(ignored) > 0 {
		text += fmt.Sprintf(", %s do not count", strings.Join(ignored, " and "))
	}
	return text
}
