package control

import (
	"context"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// What is kept of the use of sandboxes: a sample every sampleEvery, for keepSamples.
const (
	sampleEvery = 10 * time.Second
	keepSamples = time.Hour
	maxSamples  = int(keepSamples / sampleEvery)
)

// reading is what a host said of one sandbox at one time.
type reading struct {
	at       time.Time
	cpu      float64 // seconds so far, as are the bytes of network
	rx, tx   int64
	memory   int64
	memLimit int64
	disk     int64
}

// since gives the sample between two readings. Counters begin anew when a sandbox
// is woken or rolled back.
func (r reading) since(before reading) api.MetricsSample {
	grown := func(now, then int64) int64 {
		if now < then {
			return now
		}
		return now - then
	}
	cpu := r.cpu - before.cpu
	if cpu < 0 {
		cpu = r.cpu
	}
	return api.MetricsSample{
		Time:          r.at.UTC(),
		CPUPercent:    100 * cpu / r.at.Sub(before.at).Seconds(),
		MemoryBytes:   r.memory,
		MemoryLimit:   r.memLimit,
		DiskUsedBytes: r.disk,
		RxBytes:       grown(r.rx, before.rx),
		TxBytes:       grown(r.tx, before.tx),
	}
}

// history is the samples of one sandbox.
type history struct {
	last    reading
	samples []api.MetricsSample // a ring once it is full
	next    int                 // where the oldest is
}

func (h *history) add(r reading) {
	before := h.last
	h.last = r
	// What was used while nobody looked belongs to no step.
	if before.at.IsZero() || r.at.Sub(before.at) > 3*sampleEvery || !r.at.After(before.at) {
		return
	}
	if s := r.since(before); len(h.samples) < maxSamples {
		h.samples = append(h.samples, s)
	} else {
		h.samples[h.next] = s
		h.next = (h.next + 1) % maxSamples
	}
}

// after lists the samples after a moment, oldest first.
func (h *history) after(from time.Time) []api.MetricsSample {
	out := make([]api.MetricsSample, 0, len(h.samples))
	for i := range h.samples {
		if s := h.samples[(h.next+i)%len(h.samples)]; s.Time.After(from) {
			out = append(out, s)
		}
	}
	return out
}

// series is the histories of all sandboxes. They are lost when the server ends.
type series struct {
	mu   sync.Mutex
	byID map[string]*history
}

// add takes in one reading of all sandboxes, and forgets those that were not seen
// for as long as samples are kept.
func (s *series) add(at time.Time, all map[string]api.Metrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*history{}
	}
	for id, m := range all {
		h := s.byID[id]
		if h == nil {
			h = &history{}
			s.byID[id] = h
		}
		h.add(reading{at: at, cpu: m.CPUSeconds, rx: m.RxBytes, tx: m.TxBytes, memory: m.HostRSSBytes, memLimit: m.MemoryLimit, disk: m.DiskUsedBytes})
	}
	for id, h := range s.byID {
		if at.Sub(h.last.at) > keepSamples {
			delete(s.byID, id)
		}
	}
}

func (s *series) after(id string, from time.Time) []api.MetricsSample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.byID[id]; h != nil {
		return h.after(from)
	}
	return []api.MetricsSample{}
}

// runSeries measures all sandboxes of the host in one call every sampleEvery,
// until ctx ends. A host that does not answer leaves a gap.
func (s *Service) runSeries(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, sampleEvery)
		all, err := s.host.Usages(within)
		cancel()
		if err == nil {
			s.series.add(time.Now(), all)
		} else if ctx.Err() == nil {
			s.log.Debug("sandboxes were not measured", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Series gives what a sandbox used during the last span, in steps of at least
// sampleEvery. It is answered for a sandbox in any state.
func (s *Service) Series(ctx context.Context, who auth.Identity, id string, span, step time.Duration) (api.MetricsSeries, error) {
	if _, err := s.find(ctx, who, id); err != nil {
		return api.MetricsSeries{}, err
	}
	step = max(step.Round(sampleEvery), sampleEvery)
	samples := merge(s.series.after(id, time.Now().Add(-span)), int(step/sampleEvery))
	return api.MetricsSeries{SandboxID: id, StepSeconds: step.Seconds(), Samples: samples}, nil
}

// merge makes one sample of every n that follow each other, counted from the
// newest: the mean of the CPU, the largest memory, the sum of the network.
func merge(samples []api.MetricsSample, n int) []api.MetricsSample {
	if n <= 1 {
		return samples
	}
	out := make([]api.MetricsSample, 0, len(samples)/n+1)
	for i := 0; i < len(samples); {
		size := n
		if first := len(samples) % n; i == 0 && first > 0 {
			size = first
		}
		part := samples[i : i+size]
		sum := part[size-1]
		sum.CPUPercent, sum.RxBytes, sum.TxBytes = 0, 0, 0
		for _, s := range part {
			sum.CPUPercent += s.CPUPercent / float64(size)
			sum.MemoryBytes = max(sum.MemoryBytes, s.MemoryBytes)
			sum.RxBytes += s.RxBytes
			sum.TxBytes += s.TxBytes
		}
		out = append(out, sum)
		i += size
	}
	return out
}
