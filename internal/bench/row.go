package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Result is one measured quantity.
type Result struct {
	Scenario string             `json:"scenario"`
	What     string             `json:"what"`
	Unit     string             `json:"unit"` // ms, MB, MB/s, 1/s, %
	N        int                `json:"n"`
	Errors   int                `json:"errors,omitempty"`
	FirstErr string             `json:"first_error,omitempty"`
	P50      float64            `json:"p50"`
	P90      float64            `json:"p90"`
	P99      float64            `json:"p99"`
	Min      float64            `json:"min"`
	Max      float64            `json:"max"`
	Aim      *Aim               `json:"aim,omitempty"`
	Steps    map[string]float64 `json:"steps_p50,omitempty"` // milliseconds by step on the host
}

// Aim is what a quantity should be at most, in its unit, on an idle machine of 2
// cores without hardware virtualisation, where client and server share it. A zero
// is no aim.
type Aim struct {
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
}

// String gives the aims of p50 and p99.
func (a Aim) String() string {
	text := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%g", v)
	}
	return text(a.P50) + " / " + text(a.P99)
}

// Missed reports whether the figure is above its aim.
func (r Result) Missed() bool {
	return r.Aim != nil && r.N > 0 && (over(r.P50, r.Aim.P50) || over(r.P99, r.Aim.P99))
}

func over(v, aim float64) bool { return aim > 0 && v > aim }

// samples collects the values of one quantity, from any goroutine.
type samples struct {
	mu     sync.Mutex
	values []float64
	errors int
	first  error
	steps  map[string][]float64
}

func (s *samples) add(v float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, v)
}

func (s *samples) took(d time.Duration) { s.add(milliseconds(d)) }

func (s *samples) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errors++; s.first == nil {
		s.first = err
	}
}

func (s *samples) step(name string, ms float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps == nil {
		s.steps = map[string][]float64{}
	}
	s.steps[name] = append(s.steps[name], ms)
}

// boot adds the steps of a record.
func (s *samples) boot(steps []api.Step) {
	for _, x := range steps {
		s.step(x.Name, x.MS)
	}
}

// row is a quantity that a scenario measures.
type row struct {
	what, unit string
	goal       *Aim
	samples
}

// aim sets what the row should be at most; 0 is no aim.
func (r *row) aim(p50, p99 float64) *row {
	r.goal = &Aim{P50: p50, P99: p99}
	return r
}

func (r *row) result(scenario string) Result {
	out := r.samples.result(scenario, r.what, r.unit)
	out.Aim = r.goal
	return out
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

// stepLine gives steps in words, the longest first.
func stepLine(steps map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(steps), func(a, b string) int {
		return cmp.Or(cmp.Compare(steps[b], steps[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%s %.2f", n, steps[n]))
	}
	return strings.Join(parts, "  ")
}
