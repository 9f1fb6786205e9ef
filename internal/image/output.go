package image

import (
	"fmt"
	"strconv"
	"strings"
)

// stepMark begins the line that announces a step of a recipe in the output of a
// build.
const stepMark = "pandastack-step "

// debianProgress turns the output of mmdebstrap and apt into progress. A build
// has two rounds of the same kind, first the essential packages, then the
// others; apt says at the beginning of each how many there are.
type debianProgress struct {
	report   Progress
	steps    []Step
	round    int
	packages int // of this round
	fetched  int
	handled  int // unpacked, and set up
	at       float64
	step     string
}

// rounds says where in the whole build a round's downloads and installation
// begin and end.
var rounds = []struct{ start, fetched, end float64 }{
	{0.01, 0.03, 0.03},
	{0.04, 0.06, 0.18},
	{0.18, 0.28, 0.90},
}

func (d *debianProgress) line(s string) {
	r := rounds[d.round]
	switch {
	case strings.HasPrefix(s, stepMark):
		d.startStep(strings.TrimPrefix(s, stepMark))
	case strings.HasPrefix(s, "I: running apt-get update"):
		d.set("reading package lists", 0.01)
	case strings.Contains(s, " newly installed, "):
		d.round = min(d.round+1, len(rounds)-1)
		d.packages, d.fetched, d.handled = newlyInstalled(s), 0, 0
		d.set("downloading packages", rounds[d.round].start)
	case strings.HasPrefix(s, "Get:") && d.packages > 0:
		d.fetched++
		d.set("downloading packages", r.start+(r.fetched-r.start)*ratio(d.fetched, d.packages))
	case strings.HasPrefix(s, "Unpacking ") || strings.HasPrefix(s, "Setting up "):
		d.handled++
		d.set("installing packages", r.fetched+(r.end-r.fetched)*ratio(d.handled, 2*d.packages))
	}
}

func (d *debianProgress) startStep(number string) {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(d.steps) {
		return
	}
	name := d.steps[n-1].Name
	if name == "" {
		name = fmt.Sprintf("step %d", n)
	}
	d.set(name, 0.90+0.10*ratio(n-1, len(d.steps)))
}

// set reports what is worth a report: another step, or half a percent more.
func (d *debianProgress) set(step string, at float64) {
	if at < d.at {
		at = d.at
	}
	if step != d.step || at-d.at >= 0.005 {
		d.step, d.at = step, at
		d.report.report(step, at)
	}
}

func ratio(n, of int) float64 {
	if of <= 0 {
		return 0
	}
	return min(float64(n)/float64(of), 1)
}

// newlyInstalled reads "3 upgraded, 59 newly installed, ...".
func newlyInstalled(s string) int {
	before, _, _ := strings.Cut(s, " newly installed")
	f := strings.Fields(before)
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return 0
	}
	return n
}
