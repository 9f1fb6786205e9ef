//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// applicationMemory is what the host holds for all programs of a sandbox, in
// bytes: the pages of the sentry's memory file that are there. Inside, the guest
// program's VmRSS says more: the runtime counts the blocks that it maps.
func applicationMemory(t *testing.T, sentry int) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", sentry))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var total int64
	mine := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, "Rss:")
		switch {
		case ok && mine:
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			total += kb << 10
		case !strings.Contains(strings.SplitN(line, " ", 2)[0], ":"): // the head of a mapping
			mine = strings.Contains(line, "runsc-memory")
		}
	}
	if total == 0 {
		t.Fatal("the sentry has no memory file")
	}
	return total
}

// TestGuestMemory holds what an idle sandbox, in which only the guest program
// runs, costs the host in memory of applications: when it is new, and when it has
// been used.
func TestGuestMemory(t *testing.T) {
	t.Parallel()
	const most = 12 << 20
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	m, err := sb.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fresh := applicationMemory(t, m.PID)
	for range 20 {
		if _, err := sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line("head -c 1000000 /dev/zero")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sb.WriteFile(t.Context(), "/home/user/big", make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.ReadFile(t.Context(), "/home/user/big"); err != nil {
		t.Fatal(err)
	}
	var used int64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if used = applicationMemory(t, m.PID); used <= most { // what ended gives its memory back after a moment
			break
		}
	}
	t.Logf("an idle guest holds %.1f MB, after use %.1f MB", float64(fresh)/1e6, float64(used)/1e6)
	if fresh > most || used > most {
		t.Errorf("an idle guest holds %d bytes, after use %d; at most %d are wanted", fresh, used, most)
	}
}
