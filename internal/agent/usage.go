package agent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// Usage says what a sandbox uses now. Its CPU share is since the last reading,
// or since its start at the first.
func (a *Agent) Usage(ctx context.Context, id string) (api.Metrics, error) {
	s, err := a.find(ctx, id)
	if err != nil {
		return api.Metrics{}, err
	}
	m, _, err := s.current()
	if err != nil {
		return api.Metrics{}, err
	}
	u, err := m.Usage(ctx)
	if err != nil {
		return api.Metrics{}, err
	}
	now := time.Now()
	out := api.Metrics{
		PID:            u.PID,
		UptimeSeconds:  max(0, now.Sub(u.StartedAt).Seconds()),
		HostCPUPercent: s.cpuPercent(u, now),
		CPUSeconds:     u.CPU.Seconds(),
		HostRSSBytes:   u.MemoryBytes,
		MemoryLimit:    u.MemoryLimit,
		DiskUsedBytes:  u.DiskBytes,
		DiskLimit:      u.DiskLimit,
		Processes:      u.Tasks,
	}
	if slot := s.record().Slot; slot != nil {
		out.RxBytes = counter(slot.HostInterface, "tx_bytes")
		out.TxBytes = counter(slot.HostInterface, "rx_bytes")
	}
	return out, nil
}

// cpuPercent gives the CPU use between the last reading and this one.
func (s *sandbox) cpuPercent(u driver.Usage, now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, cpu := s.cpuAt, u.CPU-s.cpu
	if since.IsZero() {
		since = u.StartedAt
	}
	s.cpuAt, s.cpu = now, u.CPU
	if wall := now.Sub(since); wall > 0 && cpu > 0 {
		return 100 * cpu.Seconds() / wall.Seconds()
	}
	return 0
}

// counter reads a counter of an interface of the host: what the host sends the
// guest receives. 0 where it cannot be read.
func counter(iface, name string) int64 {
	data, err := os.ReadFile(filepath.Join("/sys/class/net", iface, "statistics", name))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}
