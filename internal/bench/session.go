package bench

import (
	"context"
	"slices"
	"time"
)

// scenario is something to measure. Its open prepares it on one server; what it
// makes there is deleted after the last round.
type scenario struct {
	name, about string
	open        func(ctx context.Context, t *target) (*session, error)
}

// session is one scenario under way on one server.
type session struct {
	rounds int
	warm   int // rounds before them that do not count: they open connections and fill caches
	rows   []*row
	// round takes one sample of each row, or all at once. A failure that
	// concerns a sample is the row's; an error ends the scenario here.
	round func(ctx context.Context) error
	// end takes what can be known only after the last round; it may be nil.
	end func(ctx context.Context) error
}

// row adds a quantity to measure.
func (s *session) row(what, unit string) *row {
	r := &row{what: what, unit: unit}
	s.rows = append(s.rows, r)
	return r
}

// results gives the rows that have samples or failures.
func (s *session) results(scenario string) []Result {
	var out []Result
	for _, r := range s.rows {
		if len(r.values) > 0 || r.errors > 0 {
			out = append(out, r.result(scenario))
		}
	}
	return out
}

// contest is a session with its server.
type contest struct {
	*target
	*session
	err error
}

// measure runs one scenario on all servers, round by round in turn.
func measure(ctx context.Context, s scenario, targets []*target, progress func(float64)) {
	progress(0)
	var all []*contest
	for _, t := range targets {
		c := &contest{target: t}
		if c.session, c.err = s.open(ctx, t); c.session == nil {
			c.session = new(session)
		}
		all = append(all, c)
	}
	rounds := 0
	for _, c := range all {
		rounds = max(rounds, c.rounds+c.warm)
	}
	order := slices.Clone(all)
	for i := range rounds {
		for _, c := range order {
			c.take(ctx, i)
		}
		slices.Reverse(order) // neither is always the one that goes first
		progress(float64(i+1) / float64(rounds))
	}
	for _, c := range all {
		if c.err == nil && c.end != nil && ctx.Err() == nil {
			c.err = c.end(ctx)
		}
		c.side.Results = append(c.side.Results, c.results(s.name)...)
		if c.err != nil {
			c.side.Results = append(c.side.Results, Result{Scenario: s.name, What: "failed", Errors: 1, FirstErr: c.err.Error()})
		}
	}
}

// take runs round i, unless there is none or the scenario failed before.
func (c *contest) take(ctx context.Context, i int) {
	if c.err != nil || i >= c.rounds+c.warm || ctx.Err() != nil {
		return
	}
	c.err = c.round(ctx)
	if i < c.warm {
		for _, r := range c.rows {
			r.values, r.steps = nil, nil // failures are kept: they are never a matter of warmth
		}
	}
}

// rest lets the server finish what it does after an answer (removing the last
// sandbox, making the next shell), as a user's pause between calls would.
const rest = 150 * time.Millisecond

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
