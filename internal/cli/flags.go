package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// duration is a flag for a length of time: 90s, 15m, 2h, 7d, or a number of
// seconds.
type duration struct{ time.Duration }

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return d.fromSeconds(n, s)
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil {
			return d.fromSeconds(n*86400, s)
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a length of time such as 90s, 15m, 2h, 7d or a number of seconds", s)
	}
	d.Duration = v
	return nil
}

func (d *duration) fromSeconds(n float64, s string) error {
	if n < 0 || math.IsNaN(n) || n > math.MaxInt64/1e10 {
		return fmt.Errorf("%q is not a length of time that can be", s)
	}
	d.Duration = time.Duration(n * float64(time.Second))
	return nil
}

// seconds is the length in whole seconds, rounded up: what is not zero stays so.
func (d *duration) seconds() int { return int((d.Duration + time.Second - 1) / time.Second) }

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// String implements pflag.Value.
func (d *duration) String() string {
	if d.Duration == 0 {
		return ""
	}
	return d.Duration.String()
}

// pairs reads KEY=VALUE flags. A key alone takes its value from lookup, when
// there is one.
func pairs(cmd *cobra.Command, flag string, in []string, lookup func(string) string) (map[string]string, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(in))
	for _, s := range in {
		k, v, ok := strings.Cut(s, "=")
		if !ok && lookup != nil {
			v, ok = lookup(k), true
		}
		if !ok || k == "" {
			return nil, usagef(cmd, "--%s takes KEY=VALUE, not %q", flag, s)
		}
		out[k] = v
	}
	return out, nil
}

// bytesText is a size for people.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// ago is how long ago something was, for people.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(time.Since(t)) + " ago"
}

// span is a length of time in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
