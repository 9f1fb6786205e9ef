package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/client"
	"github.com/pandastack/pandastack/internal/bench"
)

// envCompareKey is the key for the server that --compare names.
const envCompareKey = "PANDASTACK_COMPARE_API_KEY"

type benchOptions struct {
	bench.Options
	compare    string
	compareKey string
	json       string
	neighbours bool
	neighbour  bench.NeighbourOptions
	starts     int
}

func newBench(a *app) *cobra.Command {
	var o benchOptions
	var list strings.Builder
	for _, s := range bench.Names() {
		fmt.Fprintf(&list, "  %-10s  %s\n", s[0], s[1])
	}
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure a server",
		Long: `Measure a server through its API, from this machine, and print percentiles
beside what is aimed at, and where the time went when that was missed.

The clock of a create runs from sending the request until the output of a first
command is back. Aims are those of an idle machine of 2 cores without hardware
virtualisation. Memory is measured when the server is on this machine and this
is root. What a run makes it deletes, also when it is interrupted.

With --compare the same is measured on a second server, turn by turn with the
first, and printed side by side.

Scenarios:

` + list.String(),
		Example: `  pandastack bench
  pandastack bench --scenario sequential,fork --count 20
  pandastack bench --compare https://other.example.com --json result.json
  pandastack bench --neighbours --image base.erofs --runsc ./runsc`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, a, o) },
	}
	f := cmd.Flags()
	f.IntVarP(&o.Count, "count", "n", 100, "samples of each latency; costly scenarios take fewer")
	f.IntVar(&o.Density, "density", 100, "sandboxes at once in the density scenario")
	f.StringVarP(&o.Template, "template", "t", "base", "template of the sandboxes")
	f.StringSliceVar(&o.Scenarios, "scenario", nil, "measure only these, by name; may be repeated")
	f.StringVar(&o.compare, "compare", "", "address of a second server to measure beside the first")
	f.StringVar(&o.compareKey, "compare-key", "", "key for the second server (default: "+envCompareKey+", else the first's)")
	f.StringVar(&o.json, "json", "", "write the report to this file too")
	f.IntVar(&o.starts, "server-start", 0, "also start an empty server on this machine this many times (root)")
	f.BoolVar(&o.neighbours, "neighbours", false, "also measure other runtimes on this machine (root)")
	f.StringVar(&o.neighbour.Image, "image", "", "with --neighbours: the EROFS image they run")
	f.StringVar(&o.neighbour.Runsc, "runsc", "", "with --neighbours: a stock runsc program")
	return cmd
}

// check refuses what cannot be measured.
func (o *benchOptions) check(cmd *cobra.Command) error {
	if o.Count < 1 || o.Density < 0 || o.starts < 0 {
		return usagef(cmd, "--count must be at least 1, --density and --server-start not negative")
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
	return nil
}

// clients makes the clients of the servers to measure.
func (o *benchOptions) clients(a *app) error {
	first, err := a.options()
	if err != nil {
		return err
	}
	if o.Client, err = client.New(first); err != nil || o.compare == "" {
		return err
	}
	second := first
	second.BaseURL = o.compare
	second.APIKey = cmp.Or(o.compareKey, a.getenv(envCompareKey), first.APIKey)
	o.Compare, err = client.New(second)
	return err
}

func runBench(cmd *cobra.Command, a *app, o benchOptions) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	if err := o.clients(a); err != nil {
		return err
	}
	defer o.Client.Close()
	if o.Compare != nil {
		defer o.Compare.Close()
	}
	bar := a.newProgress()
	o.Progress = bar.show
	report, err := bench.Run(cmd.Context(), o.Options)
	bar.end()
	if err != nil {
		return err
	}
	if err := o.aside(cmd.Context(), a, report); err != nil {
		return err
	}
	return a.showReport(report, o.json)
}

// aside measures what is on this machine and not behind the API.
func (o *benchOptions) aside(ctx context.Context, a *app, report *bench.Report) error {
	if o.starts > 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		report.Results = append(report.Results, bench.ServerStart(ctx, o.starts, self))
	}
	if !o.neighbours {
		return nil
	}
	o.neighbour.N, o.neighbour.Progress = o.Count, a.stderr
	more, err := bench.Neighbours(ctx, o.neighbour)
	if err != nil { // what was measured before is worth keeping
		more = append(more, bench.Result{Scenario: "neighbour", What: "failed", Errors: 1, FirstErr: err.Error()})
	}
	report.Results = append(report.Results, more...)
	return nil
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
