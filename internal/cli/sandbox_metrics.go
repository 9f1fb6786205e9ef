package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func newSandboxMetrics(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics ID",
		Short: "Show what a sandbox uses now",
		Example: `  pandastack sandbox metrics k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox metrics k3v9x0q2m7c1b8n4t6zd -o json | jq .host_rss_bytes`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runSandboxMetrics(cmd, a, args[0]) },
	}
}

func runSandboxMetrics(cmd *cobra.Command, a *app, id string) error {
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	m, err := sb.Metrics(cmd.Context())
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(m)
	}
	of := func(used, limit int64) string {
		if limit == 0 {
			return bytesText(used)
		}
		return bytesText(used) + " of " + bytesText(limit)
	}
	var f fields
	f.add("uptime", time.Duration(m.UptimeSeconds*float64(time.Second)).Round(time.Second).String())
	f.add("cpu", fmt.Sprintf("%.1f%% now, %.2f s so far", m.HostCPUPercent, m.CPUSeconds))
	f.add("memory", of(m.HostRSSBytes, m.MemoryLimit))
	f.add("disk", of(m.DiskUsedBytes, m.DiskLimit))
	f.add("network", bytesText(m.RxBytes)+" in, "+bytesText(m.TxBytes)+" out")
	f.add("tasks", strconv.Itoa(m.Processes))
	f.add("host pid", strconv.Itoa(m.PID))
	return f.print(a)
}
