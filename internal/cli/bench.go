package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/internal/bench"
)

type benchOptions struct {
	bench.Options
	json       string
	neighbours bool
	neighbour  bench.NeighbourOptions
	starts     int
}

func newBench(a *app) *cobra.Command {
	var o benchOptions
	var list strings.Builder
	for _, s := range bench.Names() {
		fmt.Fprintf(&list, "  %-8s %s\n", s[0], s[1])
	}
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure a server",
		Long: `Measure a server through its API, from this machine, and print percentiles.

The clock of a create runs from sending the request until the output of a first
command is back. Memory is measured when the server is on this machine and this
is root. Scenarios:

` + list.String(),
		Example: `  pandastack bench
  pandastack bench --scenario tti --n 20
  pandastack bench --json result.json --neighbours --image base.erofs --runsc ./runsc`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, a, o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.N, "n", 100, "samples of each latency")
	f.IntVar(&o.Density, "density", 100, "sandboxes at once in the density scenario")
	f.StringVar(&o.Template, "template", "base", "template of the sandboxes")
	f.StringArrayVar(&o.Scenarios, "scenario", nil, "measure only this; may be repeated")
	f.StringVar(&o.json, "json", "", "write the report to this file too")
	f.IntVar(&o.starts, "server-start", 0, "also start an empty server on this machine this many times (root)")
	f.BoolVar(&o.neighbours, "neighbours", false, "also measure other runtimes on this machine (root)")
	f.StringVar(&o.neighbour.Image, "image", "", "with --neighbours: the EROFS image they run")
	f.StringVar(&o.neighbour.Runsc, "runsc", "", "with --neighbours: a stock runsc program")
	return cmd
}

func runBench(cmd *cobra.Command, a *app, o benchOptions) error {
	if o.N < 1 || o.Density < 0 {
		return usagef(cmd, "--n must be at least 1 and --density not negative")
	}
	known := map[string]bool{}
	for _, s := range bench.Names() {
		known[s[0]] = true
	}
	for _, s := range o.Scenarios {
		if !known[s] {
			return usagef(cmd, "%q is no scenario; see --help", s)
		}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	o.Client, o.Progress = c, a.stderr
	report, err := bench.Run(cmd.Context(), o.Options)
	if err != nil {
		return err
	}
	if o.starts > 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		report.Results = append(report.Results, bench.ServerStart(cmd.Context(), o.starts, self))
	}
	if o.neighbours {
		o.neighbour.N, o.neighbour.Progress = o.N, a.stderr
		more, err := bench.Neighbours(cmd.Context(), o.neighbour)
		if err != nil { // what was measured before is worth keeping
			more = append(more, bench.Result{Scenario: "neighbour", What: "failed", Errors: 1, FirstErr: err.Error()})
		}
		report.Results = append(report.Results, more...)
	}
	return a.showReport(report, o.json)
}

func (a *app) showReport(r *bench.Report, file string) error {
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := r.JSON(f); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if a.output == "json" {
		return r.JSON(a.stdout)
	}
	return r.Table(a.stdout)
}
