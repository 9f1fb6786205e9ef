// Package bench measures a PandaStack server through its public API, and what
// stands beside it on the same machine. It prints tables and writes JSON; it
// never judges.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/pandastack/pandastack/client"
)

// Result is one measured quantity.
type Result struct {
	Scenario string             `json:"scenario"`
	What     string             `json:"what"`
	Unit     string             `json:"unit"` // ms, MB, 1/s
	N        int                `json:"n"`
	Errors   int                `json:"errors,omitempty"`
	FirstErr string             `json:"first_error,omitempty"`
	P50      float64            `json:"p50"`
	P90      float64            `json:"p90"`
	P99      float64            `json:"p99"`
	Min      float64            `json:"min"`
	Max      float64            `json:"max"`
	Steps    map[string]float64 `json:"steps_p50,omitempty"` // milliseconds by step of the host's create path
}

// Report is what a run writes.
type Report struct {
	Time    time.Time `json:"time"`
	Server  string    `json:"server"`
	Runtime string    `json:"runtime,omitempty"`
	Machine Machine   `json:"machine"`
	Results []Result  `json:"results"`
}

// Options choose what to measure.
type Options struct {
	Client    *client.Client
	Template  string
	N         int      // samples of each latency
	Density   int      // sandboxes at once
	Scenarios []string // empty: all
	Progress  io.Writer
}

// scenario measures something through the API.
type scenario struct {
	name, about string
	run         func(*runner, context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{"tti", "create to the first command's output, one after another", (*runner).ttiOf},
		{"exec", "a command in a sandbox that is warm", (*runner).execOf},
		{"rate", "creates at 20 a second for 10 seconds", (*runner).rateOf},
		{"burst", "all creates at once, until the last has answered", (*runner).burstOf},
		{"files", "file up and down, 16 MiB", (*runner).filesOf},
		{"density", "many sandboxes at once, all answering, and their memory", (*runner).densityOf},
	}
}

// Names lists the scenarios with what each measures.
func Names() [][2]string {
	var out [][2]string
	for _, s := range scenarios() {
		out = append(out, [2]string{s.name, s.about})
	}
	return out
}

type runner struct {
	Options
	results []Result
}

// Run measures and reports. A scenario that fails is in the report with its
// error; the others go on.
func Run(ctx context.Context, o Options) (*Report, error) {
	v, err := o.Client.Version(ctx)
	if err != nil {
		return nil, err
	}
	machine := ThisMachine() // before the load that this makes
	r := &runner{Options: o}
	for _, s := range scenarios() {
		if len(o.Scenarios) > 0 && !slices.Contains(o.Scenarios, s.name) {
			continue
		}
		fmt.Fprintf(o.Progress, "bench: %s (%s)\n", s.name, s.about)
		if err := s.run(r, ctx); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.results = append(r.results, Result{Scenario: s.name, What: "failed", Errors: 1, FirstErr: err.Error()})
		}
	}
	return &Report{Time: time.Now().UTC(), Server: v.Version, Runtime: v.Runtime, Machine: machine, Results: r.results}, nil
}

// samples collects one quantity.
type samples struct {
	values []float64
	errors int
	first  error
	steps  map[string][]float64
}

func (s *samples) add(v float64) { s.values = append(s.values, v) }

func (s *samples) fail(err error) {
	if s.errors++; s.first == nil {
		s.first = err
	}
}

func (s *samples) step(name string, ms float64) {
	if s.steps == nil {
		s.steps = map[string][]float64{}
	}
	s.steps[name] = append(s.steps[name], ms)
}

// result summarises. Percentiles are of the values as sorted: the p99 of 100
// values is the 99th.
func (s *samples) result(scenario, what, unit string) Result {
	r := Result{Scenario: scenario, What: what, Unit: unit, N: len(s.values), Errors: s.errors}
	if s.first != nil {
		r.FirstErr = s.first.Error()
	}
	if len(s.values) == 0 {
		return r
	}
	slices.Sort(s.values)
	r.P50, r.P90, r.P99 = percentile(s.values, 50), percentile(s.values, 90), percentile(s.values, 99)
	r.Min, r.Max = round(s.values[0]), round(s.values[len(s.values)-1])
	for name, v := range s.steps {
		if r.Steps == nil {
			r.Steps = map[string]float64{}
		}
		slices.Sort(v)
		r.Steps[name] = percentile(v, 50)
	}
	return r
}

func percentile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return round(sorted[max(i, 0)])
}

func round(v float64) float64 { return math.Round(v*100) / 100 }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "server %s, %s\n%s\n\n", r.Server, r.Runtime, r.Machine)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\twhat\tn\tp50\tp90\tp99\tmin\tmax\tunit\t")
	for _, x := range r.Results {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t\n", x.Scenario, x.What, x.N, x.P50, x.P90, x.P99, x.Min, x.Max, x.Unit)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range r.Results {
		if x.Errors > 0 {
			fmt.Fprintf(w, "%s/%s: %d errors, the first: %s\n", x.Scenario, x.What, x.Errors, x.FirstErr)
		}
		if len(x.Steps) > 0 {
			fmt.Fprintf(w, "%s/%s by step, p50 ms: %s\n", x.Scenario, x.What, stepLine(x.Steps))
		}
	}
	return nil
}

func stepLine(steps map[string]float64) string {
	names := make([]string, 0, len(steps))
	for n := range steps {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return int(math.Copysign(1, steps[b]-steps[a])) })
	line := ""
	for _, n := range names {
		line += fmt.Sprintf("%s %.2f  ", n, steps[n])
	}
	return line
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
