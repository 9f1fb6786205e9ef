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
	out, u, now, err := s.usage(ctx)
	if err != nil {
		return api.Metrics{}, err
	}
	out.HostCPUPercent = s.cpuPercent(u, now)
	return out, nil
}

// Usages is Usage of every running or paused sandbox, and does not count as a
// reading.
func (a *Agent) Usages(ctx context.Context) (map[string]api.Metrics, error) {
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	out := map[string]api.Metrics{}
	for _, s := range a.all() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if m, _, _, err := s.usage(ctx); err == nil {
			out[s.id] = m
		}
	}
	return out, nil
}

// usage measures a sandbox that has a machine.
func (s *sandbox) usage(ctx context.Context) (api.Metrics, driver.Usage, time.Time, error) {
	m, _, err := s.current()
	if err != nil {
		return api.Metrics{}, driver.Usage{}, time.Time{}, err
	}
	u, err := m.Usage(ctx)
	if err != nil {
		return api.Metrics{}, driver.Usage{}, time.Time{}, err
	}
	now := time.Now()
	out := api.Metrics{
		PID:           u.PID,
		UptimeSeconds: max(0, now.Sub(u.StartedAt).Seconds()),
		CPUSeconds:    u.CPU.Seconds(),
		HostRSSBytes:  u.MemoryBytes,
		MemoryLimit:   u.MemoryLimit,
		DiskUsedBytes: u.DiskBytes,
		DiskLimit:     u.DiskLimit,
		Processes:     u.Tasks,
	}
	if slot := s.record().Slot; slot != nil {
		out.RxBytes = counter(slot.HostInterface, "tx_bytes")
		out.TxBytes = counter(slot.HostInterface, "rx_bytes")
	}
	return out, u, now, nil
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
