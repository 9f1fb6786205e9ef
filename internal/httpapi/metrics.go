package httpapi

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pandastack/pandastack/api"
)

// metrics are the API's counters. No label ever names a sandbox, a caller or a
// path that a client made up, so their number stays small.
type metrics struct {
	requests *prometheus.CounterVec
	creates  *prometheus.CounterVec
	failures *prometheus.CounterVec
	boot     *prometheus.HistogramVec
	steps    *prometheus.HistogramVec
	pauses   *prometheus.HistogramVec
	execs    *prometheus.CounterVec
	execTime prometheus.Histogram
}

func newMetrics(reg *prometheus.Registry) *metrics {
	ms := []float64{1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 200, 400, 800, 1600, 5000, 20000}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pandastack_http_requests_total", Help: "Requests by route, method and status.",
		}, []string{"route", "method", "status"}),
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pandastack_sandbox_creates_total", Help: "Sandboxes created, by boot mode.",
		}, []string{"boot_mode"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pandastack_sandbox_create_failures_total", Help: "Creates and forks that failed, by error code.",
		}, []string{"code"}),
		boot: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pandastack_sandbox_boot_milliseconds", Help: "From the host taking a create, fork, wake or rollback to the guest answering.", Buckets: ms,
		}, []string{"boot_mode"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pandastack_sandbox_boot_step_milliseconds", Help: "Each step of a start.", Buckets: ms,
		}, []string{"boot_mode", "step"}),
		pauses: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pandastack_snapshot_pause_milliseconds", Help: "How long a sandbox stood still to be captured.", Buckets: ms,
		}, []string{"kind"}),
		execs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pandastack_execs_total", Help: "Commands run, by call and outcome.",
		}, []string{"call", "outcome"}),
		execTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pandastack_exec_seconds", Help: "Commands from request to result.",
			Buckets: []float64{.002, .004, .006, .008, .012, .02, .05, .1, .5, 1, 5, 30, 120, 600, 3600},
		}),
	}
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pandastack_goroutines", Help: "Goroutines of the server: what it does at once. One that only grows is a fault.",
	}, func() float64 { return float64(runtime.NumGoroutine()) }))
	reg.MustRegister(m.requests, m.creates, m.failures, m.boot, m.steps, m.pauses, m.execs, m.execTime)
	return m
}

// request counts one request under the route it matched.
func (m *metrics) request(r *http.Request, status int) {
	route, method := "none", "any"
	if _, path, ok := strings.Cut(r.Pattern, " "); ok {
		route, method = path, r.Method
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
}

func (m *metrics) created(s api.Sandbox, err error) {
	if err != nil {
		m.failures.WithLabelValues(string(api.CodeOf(err))).Inc()
		return
	}
	m.creates.WithLabelValues(string(s.BootMode)).Inc()
	m.started(s)
}

// started notes how long a sandbox took to come to life, created or not.
func (m *metrics) started(s api.Sandbox) {
	mode := string(s.BootMode)
	m.boot.WithLabelValues(mode).Observe(s.BootMS)
	for _, st := range s.BootSteps {
		m.steps.WithLabelValues(mode, st.Name).Observe(st.MS)
	}
}

// Woken notes a start that no request asked for by name: the wake of a
// hibernated sandbox, whichever request caused it.
func (a *API) Woken(s api.Sandbox) { a.metrics.started(s) }

func (m *metrics) captured(s api.Snapshot) {
	m.pauses.WithLabelValues(string(s.Kind)).Observe(s.PauseMS)
}

func (m *metrics) executed(call string, start time.Time, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.execs.WithLabelValues(call, outcome).Inc()
	m.execTime.Observe(time.Since(start).Seconds())
}

// metricsHandler serves the metrics. States, where given, are asked for with the
// context of the request, since they may come from another machine.
func (a *API) metricsHandler() http.HandlerFunc {
	desc := prometheus.NewDesc("pandastack_sandboxes", "Sandboxes by state.", []string{"state"}, nil)
	return func(w http.ResponseWriter, r *http.Request) {
		all := prometheus.Gatherers{a.Registry}
		if a.States != nil {
			ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
			defer cancel()
			if states, err := a.States(ctx); err != nil {
				// The other numbers are as good without this one.
				a.Log.Debug("no sandbox states for the metrics", "request_id", requestOf(r.Context()).id, "error", err)
			} else {
				now := prometheus.NewRegistry()
				now.MustRegister(stateCollector{desc, states})
				all = append(all, now)
			}
		}
		promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	}
}

// stateCollector is the number of sandboxes by state at one moment.
type stateCollector struct {
	desc   *prometheus.Desc
	states map[string]int
}

// Describe says what it collects.
func (c stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect gives one gauge a state.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	for state, n := range c.states {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}
