package control

import (
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// TestSeriesKeepsAnHour: samples are differences between readings, an hour of them
// is kept, gaps are none, and sandboxes that are gone are forgotten.
func TestSeriesKeepsAnHour(t *testing.T) {
	t.Parallel()
	var s series
	at := time.Unix(1_800_000_000, 0)
	begun := at
	for i := range 500 {
		m := api.Metrics{CPUSeconds: float64(i) * 5, RxBytes: int64(i) * 100, TxBytes: int64(i), HostRSSBytes: int64(i) << 20}
		if i >= 450 {
			m.CPUSeconds, m.RxBytes = float64(i-450), 7 // woken: the counters begin anew
		}
		all := map[string]api.Metrics{"a": m}
		if i == 0 {
			all["b"] = m
		}
		s.add(at, all)
		at = at.Add(sampleEvery)
	}
	got := s.after("a", begun)
	if len(got) != maxSamples || !got[0].Time.Before(got[1].Time) || got[0].CPUPercent != 50 || got[0].RxBytes != 100 || got[0].TxBytes != 1 {
		t.Errorf("%d samples, first %+v", len(got), got[0])
	}
	if last := got[len(got)-1]; last.CPUPercent != 10 || last.RxBytes != 0 || last.MemoryBytes != 499<<20 {
		t.Errorf("last %+v", last)
	}
	for _, m := range got {
		if m.CPUPercent < 0 || m.RxBytes < 0 || m.TxBytes < 0 {
			t.Fatalf("%+v", m)
		}
	}
	if n := len(s.after("a", at.Add(-time.Minute))); n != 5 {
		t.Errorf("%d samples of the last minute", n)
	}
	if _, ok := s.byID["b"]; ok {
		t.Error("one that is gone is remembered")
	}
	at = at.Add(time.Minute) // asleep
	s.add(at, map[string]api.Metrics{"a": {CPUSeconds: 1000}})
	if after := s.after("a", begun); len(after) != maxSamples || after[len(after)-1] != got[len(got)-1] {
		t.Error("the time asleep made a sample")
	}
}

func TestSeriesMerge(t *testing.T) {
	t.Parallel()
	var in []api.MetricsSample
	for i := range 7 {
		in = append(in, api.MetricsSample{Time: time.Unix(int64(10*i), 0), CPUPercent: float64(i), MemoryBytes: int64(10 - i), RxBytes: 1, TxBytes: 2})
	}
	out := merge(in, 3)
	if len(out) != 3 || out[0].RxBytes != 1 || out[1].CPUPercent != 2 || out[1].MemoryBytes != 9 || out[1].RxBytes != 3 || out[2].CPUPercent != 5 || out[2].Time != in[6].Time {
		t.Errorf("%+v", out)
	}
	if got := merge(nil, 6); len(got) != 0 || got == nil {
		t.Errorf("%+v", got)
	}
}

func TestCheckTag(t *testing.T) {
	t.Parallel()
	for tag, ok := range map[string]bool{"": true, "job-1": true, "a.b:c": true, "ä": true, "12": false, "-3": false, "a b": false, "a/b": false, "..": false, "a\n": false} {
		if err := checkTag(tag); (err == nil) != ok {
			t.Errorf("%q: %v", tag, err)
		}
	}
}
