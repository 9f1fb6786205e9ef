package cli

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "15m": 15 * time.Minute, "7d": 168 * time.Hour, "0": 0,
	} {
		var d duration
		if err := d.Set(in); err != nil || d.Duration != want {
			t.Errorf("%s: %v, %v", in, d.Duration, err)
		}
	}
	for _, in := range []string{"", "soon", "-1", "-5m", "NaN", "Inf", "1e300", "d", "5x"} {
		var d duration
		if err := d.Set(in); err == nil {
			t.Errorf("%q is %v", in, d.Duration)
		}
	}
}

func TestRemotePath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"abc:/x": {"abc", "/x"}, "abc:x:y": {"abc", "x:y"}, "abc:": {"abc", "."},
	} {
		if id, p, ok := remotePath(in); !ok || id != want[0] || p != want[1] {
			t.Errorf("%s: %s %s %v", in, id, p, ok)
		}
	}
	for _, in := range []string{"x", "./a:b", "/a:b", ":x", "-", ""} {
		if _, _, ok := remotePath(in); ok {
			t.Errorf("%s is in a sandbox", in)
		}
	}
}
