package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Table writes the report for people: one server's figures with their aims, or
// two servers' side by side.
func (r *Report) Table(w io.Writer) error {
	if r.Compare != nil {
		return r.compareTable(w)
	}
	fmt.Fprintf(w, "server %s, %s\n%s\n\n", r.Server, r.Runtime, r.Machine)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\twhat\tn\tp50\tp90\tp99\tmin\tmax\tunit\taim p50/p99\t\t")
	for _, x := range r.Results {
		aim, missed := "", ""
		if x.Aim != nil {
			aim = x.Aim.String()
		}
		if x.Missed() {
			missed = "missed"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\t\n",
			x.Scenario, x.What, x.N, x.P50, x.P90, x.P99, x.Min, x.Max, x.Unit, aim, missed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return notes(w, "", r.Results)
}

// notes writes what a table has no room for: errors, and where the time went
// when an aim was missed, or the row is another runtime's.
func notes(w io.Writer, prefix string, results []Result) error {
	var err error
	for _, x := range results {
		if x.Errors > 0 {
			_, err = fmt.Fprintf(w, "%s%s/%s: %d errors, the first: %s\n", prefix, x.Scenario, x.What, x.Errors, x.FirstErr)
		}
		if len(x.Steps) > 0 && (x.Scenario == neighbourScenario || x.Missed()) {
			_, err = fmt.Fprintf(w, "%s%s/%s by step, p50 ms: %s\n", prefix, x.Scenario, x.What, stepLine(x.Steps))
		}
	}
	return err
}

// compareTable sets two servers beside each other. A ratio above 1 says that B
// has the greater figure.
func (r *Report) compareTable(w io.Writer) error {
	fmt.Fprintf(w, "A: %s, %s, %s\nB: %s, %s, %s\nfrom %s\n\n", r.Address, r.Server, r.Runtime,
		r.Compare.Address, r.Compare.Server, r.Compare.Runtime, r.Machine)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\twhat\tunit\tn A\tn B\tp50 A\tp50 B\tB/A\tp90 A\tp90 B\tp99 A\tp99 B\tB/A\taim p50/p99\t")
	for _, p := range pair(r.Results, r.Compare.Results) {
		x := p.either()
		aim := ""
		if x.Aim != nil {
			aim = x.Aim.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Scenario, x.What, x.Unit, p.a.N, p.b.N,
			figure(p.a, p.a.P50), figure(p.b, p.b.P50), p.ratio(p.a.P50, p.b.P50), figure(p.a, p.a.P90), figure(p.b, p.b.P90),
			figure(p.a, p.a.P99), figure(p.b, p.b.P99), p.ratio(p.a.P99, p.b.P99), aim)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := notes(w, "A: ", r.Results); err != nil {
		return err
	}
	return notes(w, "B: ", r.Compare.Results)
}

// versus is one quantity of two servers; what one of them lacks is zero.
type versus struct{ a, b Result }

func (p versus) either() Result {
	if p.a.Scenario != "" {
		return p.a
	}
	return p.b
}

func (p versus) ratio(a, b float64) string {
	if p.a.N == 0 || p.b.N == 0 || a == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", b/a)
}

// figure is a value, or a dash where nothing was measured.
func figure(r Result, v float64) string {
	if r.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// pair finds the quantities of two servers that belong together, in the order
// of the first, and after them those that only the second has.
func pair(a, b []Result) []versus {
	type key struct{ scenario, what string }
	at := map[key]int{}
	var out []versus
	for _, x := range a {
		at[key{x.Scenario, x.What}] = len(out)
		out = append(out, versus{a: x})
	}
	for _, x := range b {
		if i, ok := at[key{x.Scenario, x.What}]; ok {
			out[i].b = x
		} else {
			out = append(out, versus{b: x})
		}
	}
	return out
}
