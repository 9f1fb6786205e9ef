package control

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// deniedPerMinute bounds the events that one sandbox can cause by trying what it
// may not. The connection log, which is bounded by itself, has the rest.
const deniedPerMinute = 30

// denials counts the events of this minute by sandbox.
type denials struct {
	mu     sync.Mutex
	minute time.Time
	byID   map[string]int
}

// admit reports whether one more event of a sandbox may be written.
func (d *denials) admit(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if minute := time.Now().Truncate(time.Minute); minute != d.minute || d.byID == nil {
		d.minute, d.byID = minute, make(map[string]int)
	}
	d.byID[id]++
	return d.byID[id] <= deniedPerMinute
}

// denied writes down that a sandbox tried to reach what it may not.
func (s *Service) denied(ctx context.Context, id string, c *api.Connection) {
	if !s.denials.admit(id) {
		return
	}
	rec, _ := s.records.get(id)
	row := store.Sandbox{ID: id}
	if rec != nil {
		row.Org = rec.org
	} else if found, err := s.current(ctx, id); err == nil && found != nil {
		row.Org = found.Org
	} else {
		return // it is gone
	}
	data := map[string]string{"protocol": c.Protocol, "reason": c.Reason}
	for key, value := range map[string]string{"name": c.Name, "address": c.Address} {
		if value != "" {
			data[key] = value
		}
	}
	if c.Port != 0 {
		data["port"] = strconv.Itoa(c.Port)
	}
	s.emit(&row, EventDenied, data)
}
