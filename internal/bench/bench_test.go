package bench

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var s samples
	for i := 100; i > 0; i-- { // 1 to 100, the greatest first
		s.add(float64(i))
	}
	s.fail(errors.New("one"))
	s.fail(errors.New("two"))
	r := s.result("a", "b", "ms")
	if r.N != 100 || r.P50 != 50 || r.P90 != 90 || r.P99 != 99 || r.Min != 1 || r.Max != 100 {
		t.Errorf("of 1 to 100: %+v", r)
	}
	if r.Errors != 2 || r.FirstErr != "one" {
		t.Errorf("two failures: %+v", r)
	}
	one := samples{values: []float64{7}}
	if r := one.result("a", "b", "ms"); r.P50 != 7 || r.P99 != 7 {
		t.Errorf("of one value: %+v", r)
	}
	if r := new(samples).result("a", "b", "ms"); r.N != 0 || r.P99 != 0 {
		t.Errorf("of none: %+v", r)
	}
}

func TestAim(t *testing.T) {
	t.Parallel()
	result := func(p50, p99 float64, aim *Aim) Result { return Result{N: 100, P50: p50, P99: p99, Aim: aim} }
	for _, c := range []struct {
		r    Result
		want bool
	}{
		{result(30, 60, &Aim{30, 60}), false},
		{result(30.01, 60, &Aim{30, 60}), true},
		{result(30, 61, &Aim{30, 60}), true},
		{result(30, 1000, &Aim{P50: 30}), false},
		{result(1000, 1000, nil), false},
		{Result{P50: 0, Aim: &Aim{30, 60}}, false}, // nothing was measured
	} {
		if c.r.Missed() != c.want {
			t.Errorf("p50 %g, p99 %g with aim %v: missed is %v", c.r.P50, c.r.P99, c.r.Aim, !c.want)
		}
	}
	if got := (Aim{P50: 3500}).String(); got != "3500 / -" {
		t.Errorf("an aim without p99 is %q", got)
	}
}

// TestTable looks for what must be there: the aim beside its figure, the steps
// of what missed and not of what did not, and errors.
func TestTable(t *testing.T) {
	t.Parallel()
	r := Report{Side: Side{Server: "v1", Results: []Result{
		{Scenario: "fork", What: "good", Unit: "ms", N: 3, P50: 10, Aim: &Aim{P50: 45, P99: 90}, Steps: map[string]float64{"quick": 1}},
		{Scenario: "wake", What: "slow", Unit: "ms", N: 3, P50: 50, Aim: &Aim{P50: 40}, Steps: map[string]float64{"short": 1, "long": 40}},
		{Scenario: "files", What: "failed", Errors: 1, FirstErr: "no room"},
	}}}
	var b strings.Builder
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{"45 / 90", "40 / -  missed", "wake/slow by step, p50 ms: long 40.00  short 1.00\n", "files/failed: 1 errors, the first: no room\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q", want)
		}
	}
	if strings.Contains(got, "quick") || strings.Count(got, "missed") != 1 {
		t.Error("what reached its aim is marked")
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestCompareTable(t *testing.T) {
	t.Parallel()
	r := Report{
		Side: Side{Address: "http://one", Server: "v1", Results: []Result{
			{Scenario: "fork", What: "x", Unit: "ms", N: 3, P50: 10, P99: 20, Aim: &Aim{P50: 45}},
			{Scenario: "exec", What: "only A", Unit: "ms", N: 3, P50: 1},
		}},
		Compare: &Side{Address: "http://two", Server: "v2", Results: []Result{
			{Scenario: "fork", What: "x", Unit: "ms", N: 2, P50: 15, P99: 10},
			{Scenario: "wake", What: "only B", Unit: "ms", N: 3, P50: 2},
		}},
	}
	var b strings.Builder
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(b.String()) {
		if f := strings.Fields(line); len(f) > 1 {
			lines[f[0]] = strings.Join(f, " ")
		}
	}
	for scenario, want := range map[string]string{
		"fork": "fork x ms 3 2 10.00 15.00 1.50 0.00 0.00 20.00 10.00 0.50 45 / -",
		"exec": "exec only A ms 3 0 1.00 - - 0.00 - 0.00 - -",
		"wake": "wake only B ms 0 3 - 2.00 - - 0.00 - 0.00 -",
		"A:":   "A: http://one, v1,",
		"B:":   "B: http://two, v2,",
	} {
		if lines[scenario] != want {
			t.Errorf("%s: %q, want %q", scenario, lines[scenario], want)
		}
	}
}

// TestJSON reads a report back: its first server's figures stand at the top, as
// they do in reports without a second.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := Report{Side: Side{Server: "v1", Results: []Result{{Scenario: "fork"}}}, Compare: &Side{Server: "v2"}}
	var b strings.Builder
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Server  string
		Results []Result
		Compare struct{ Server string }
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Server != "v1" || len(got.Results) != 1 || got.Compare.Server != "v2" {
		t.Errorf("%s", b.String())
	}
}

// TestMeasure takes rounds on two targets: in turn, neither always first, warm
// ones without their values, and one that fails does not stop the other.
func TestMeasure(t *testing.T) {
	t.Parallel()
	var order []string
	targets := []*target{{run: "a"}, {run: "b"}}
	s := scenario{name: "s", open: func(_ context.Context, t *target) (*session, error) {
		s := &session{rounds: 3, warm: 1}
		r, n := s.row("x", "ms"), 0
		s.round = func(context.Context) error {
			order = append(order, t.run)
			if n++; n == 3 && t.run == "b" {
				return errors.New("gone")
			}
			r.took(time.Duration(n) * time.Millisecond)
			return nil
		}
		return s, nil
	}}
	var last float64
	measure(t.Context(), s, targets, func(part float64) { last = part })
	if got := strings.Join(order, ""); got != "abbaaba" {
		t.Errorf("the order is %s", got)
	}
	a, b := targets[0].side.Results, targets[1].side.Results
	if len(a) != 1 || a[0].N != 3 || a[0].Min != 2 || a[0].Max != 4 {
		t.Errorf("of the one that works: %+v", a)
	}
	if len(b) != 2 || b[0].N != 1 || b[1].What != "failed" || b[1].FirstErr != "gone" {
		t.Errorf("of the one that fails: %+v", b)
	}
	if last != 1 {
		t.Errorf("at the end %g is done", last)
	}
}

// TestGaps reads what a parent that watches the clock tells.
func TestGaps(t *testing.T) {
	t.Parallel()
	var g gaps
	g.read(strings.NewReader("2.5\n31.25\n4\nTraceback\n99\n"))
	if got := g.since(); got != 31250*time.Microsecond {
		t.Errorf("the longest gap is %s", got)
	}
	if got := g.since(); got != leastGap {
		t.Errorf("without a gap it is %s", got)
	}
}

// TestNames keeps the names of scenarios apart: they are given on command lines.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, n := range Names() {
		if seen[n[0]] || n[1] == "" || strings.ContainsAny(n[0], ", ") {
			t.Errorf("%q", n)
		}
		seen[n[0]] = true
	}
}
