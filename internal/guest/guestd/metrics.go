//go:build linux

package guestd

import (
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// usage is the body of GET /metrics: bytes, mebibytes and percent of one
// machine's worth of CPUs since the last reading.
type usage struct {
	TS          int64   `json:"ts"`
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// cpuClock remembers the last reading of the CPU times.
type cpuClock struct {
	mu         sync.Mutex
	busy, idle uint64
}

// percent is the share of the time since the last call that CPUs were busy.
func (c *cpuClock) percent() float64 {
	busy, idle := cpuTimes(readBounded("/proc/stat", 64<<10))
	c.mu.Lock()
	defer c.mu.Unlock()
	db, di := busy-c.busy, idle-c.idle
	if busy < c.busy || idle < c.idle {
		db, di = busy, idle // the clock went back: another machine
	}
	c.busy, c.idle = busy, idle
	if db+di == 0 {
		return 0
	}
	return 100 * float64(db) / float64(db+di)
}

// cpuTimes reads the first line of /proc/stat.
func cpuTimes(stat string) (busy, idle uint64) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	for i, v := range f {
		n, err := strconv.ParseUint(v, 10, 64)
		switch {
		case err != nil || i == 0 || i > 8: // after steal comes time counted already
		case i == 4 || i == 5:
			idle += n
		default:
			busy += n
		}
	}
	return busy, idle
}

// memInfo reads bytes out of /proc/meminfo.
func memInfo(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		if n, err := strconv.ParseUint(f[0], 10, 54); err == nil {
			out[name] = n << 10
		}
	}
	return out
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	m := memInfo(readBounded("/proc/meminfo", 64<<10))
	u := usage{
		TS:         time.Now().Unix(),
		CPUCount:   runtime.NumCPU(),
		CPUUsedPct: s.cpu.percent(),
		MemTotal:   m["MemTotal"],
		MemCache:   m["Cached"] + m["Buffers"],
	}
	free := m["MemAvailable"]
	if free == 0 {
		free = m["MemFree"]
	}
	u.MemUsed = u.MemTotal - min(free, u.MemTotal)
	u.MemTotalMiB, u.MemUsedMiB = u.MemTotal>>20, u.MemUsed>>20
	var st syscall.Statfs_t
	if syscall.Statfs("/", &st) == nil {
		u.DiskTotal = st.Blocks * uint64(st.Bsize)
		u.DiskUsed = (st.Blocks - min(st.Bfree, st.Blocks)) * uint64(st.Bsize)
	}
	w.Header().Set("Cache-Control", "no-store")
	httpJSON(w, u)
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) envs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	httpJSON(w, s.globalEnv())
}

// protect makes the programs that are started here likelier victims of a lack
// of memory than the daemon: they inherit the score, and the first process of a
// machine is never chosen whatever its own.
func protect() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("100"), 0) // not every kernel has it
}
