package gateway

import (
	"sync"

	"github.com/pandastack/pandastack/api"
)

// maxUnderWay bounds the requests under way to one sandbox, upgraded connections
// included: each holds memory and a connection of the server's, which whoever
// knows one sandbox must not use up for all.
const maxUnderWay = 1024

// crowds counts the requests under way.
type crowds struct {
	mu   sync.Mutex
	byID map[string]int
}

// enter reports whether one more may go to a sandbox; leave ends it.
func (c *crowds) enter(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = make(map[string]int)
	}
	if c.byID[id] >= maxUnderWay {
		return false
	}
	c.byID[id]++
	return true
}

func (c *crowds) leave(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[id]--; c.byID[id] == 0 {
		delete(c.byID, id)
	}
}

// crowded is the refusal of one more.
func crowded(id string) error {
	e := api.Errorf(api.CodeCapacity, "%d requests to sandbox %s are under way, which is as many as may be", maxUnderWay, id).
		WithHint("Try again when some of them have ended.")
	return &unready{cause: e, title: "Too many visitors at once", after: comeBack}
}
