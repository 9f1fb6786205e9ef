package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
)

type metricsOptions struct {
	span, step string
	watch      bool
}

func newSandboxMetrics(a *app) *cobra.Command {
	var o metricsOptions
	cmd := &cobra.Command{
		Use:   "metrics ID [flags]",
		Short: "Show what a sandbox uses",
		Long: `Show what a sandbox uses now, or with --range what it used over the last while.
The server measures every ten seconds and keeps an hour; its restart begins anew.`,
		Example: `  pandastack sandbox metrics k3v9x0q2m7c1b8n4t6zd
  pandastack sandbox metrics k3v9x0q2m7c1b8n4t6zd --watch
  pandastack sandbox metrics k3v9x0q2m7c1b8n4t6zd --range 15m --step 1m
  pandastack sandbox metrics k3v9x0q2m7c1b8n4t6zd -o json | jq .host_rss_bytes`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.watch && (o.span != "" || o.step != "") {
				return usagef(cmd, "--watch shows the use from now on, --range that of before; give one of the two")
			}
			return runSandboxMetrics(cmd, a, o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.span, "range", "", "show the samples of this long, such as 15m (at most 1h are kept)")
	f.StringVar(&o.step, "step", "", "time between two samples of a range (default 10s)")
	f.BoolVar(&o.watch, "watch", false, "go on with a line every two seconds until interrupted")
	return cmd
}

func runSandboxMetrics(cmd *cobra.Command, a *app, o metricsOptions, id string) error {
	sb, err := a.handle(id)
	if err != nil {
		return err
	}
	switch {
	case o.watch:
		return a.watchMetrics(cmd, sb)
	case o.span != "" || o.step != "":
		return a.metricsRange(cmd, sb, o)
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

// metricsRange prints a series.
func (a *app) metricsRange(cmd *cobra.Command, sb *client.Sandbox, o metricsOptions) error {
	s, err := sb.MetricsSeries(cmd.Context(), o.span, o.step)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(s)
	}
	t := table{headings: []string{"TIME", "CPU", "MEMORY", "DISK", "IN", "OUT"}}
	for _, m := range s.Samples {
		t.add(m.Time.UTC().Format(time.RFC3339), fmt.Sprintf("%.1f%%", m.CPUPercent), bytesText(m.MemoryBytes),
			bytesText(m.DiskUsedBytes), bytesText(m.RxBytes), bytesText(m.TxBytes))
	}
	return t.print(a)
}

// watchMetrics prints what is used now again and again.
func (a *app) watchMetrics(cmd *cobra.Command, sb *client.Sandbox) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		m, err := sb.Metrics(cmd.Context())
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = a.printJSONLine(m)
		} else {
			_, err = fmt.Fprintf(a.stdout, "%s  cpu %.1f%%  memory %s  disk %s  network %s in, %s out\n", time.Now().Format(time.TimeOnly),
				m.HostCPUPercent, bytesText(m.HostRSSBytes), bytesText(m.DiskUsedBytes), bytesText(m.RxBytes), bytesText(m.TxBytes))
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
}
