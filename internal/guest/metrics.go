package guest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

// Metrics is what the sandbox uses as it sees it itself. It may lie: limits and
// bills use what the host measures.
type Metrics struct {
	Timestamp  int64   `json:"ts"` // unix seconds
	CPUs       int     `json:"cpu_count"`
	CPUPercent float64 `json:"cpu_used_pct"` // of all CPUs, since the last reading
	MemTotal   int64   `json:"mem_total"`    // bytes, as are the following
	MemUsed    int64   `json:"mem_used"`
	MemCache   int64   `json:"mem_cache"`
	DiskUsed   int64   `json:"disk_used"`
	DiskTotal  int64   `json:"disk_total"`
}

// Metrics asks the daemon what the sandbox uses.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	resp, err := c.do(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return Metrics{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return Metrics{}, transportError(ctx, err)
	}
	m, ok := parseMetrics(data)
	if !ok {
		return Metrics{}, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return m, nil
}

// parseMetrics reads the body of /metrics.
func parseMetrics(data []byte) (Metrics, bool) {
	var m Metrics
	if json.Unmarshal(data, &m) != nil {
		return Metrics{}, false
	}
	ok := m.CPUs >= 0 && m.CPUPercent >= 0 && m.MemTotal >= 0 && m.MemUsed >= 0 && m.MemCache >= 0 && m.DiskUsed >= 0 && m.DiskTotal >= 0
	return m, ok
}
