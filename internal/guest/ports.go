package guest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

// MaxListeners bounds how many listening ports are told of one machine: the
// lowest ones.
const MaxListeners = 256

// MaxPortWait bounds how long the daemon holds one question back.
const MaxPortWait = time.Minute

const maxProcessName = 64

// Listener is a TCP port that something listens on which is reached from
// outside of the machine.
type Listener struct {
	Port    int    `json:"port"`
	Process string `json:"process,omitempty"`
}

// Listeners is what listens in a machine, in ascending order of ports. State
// names it: another state is another set of sockets.
type Listeners struct {
	State string     `json:"state"`
	Ports []Listener `json:"ports"`
}

// Ports asks what listens now.
func (c *Client) Ports(ctx context.Context) (Listeners, error) { return c.ports(ctx, "", 0) }

// NextPorts waits until what listens is no longer as state says, and gives it;
// after wait it gives what there is. The daemon looks only while it is asked.
func (c *Client) NextPorts(ctx context.Context, state string, wait time.Duration) (Listeners, error) {
	return c.ports(ctx, state, min(wait, MaxPortWait))
}

func (c *Client) ports(ctx context.Context, state string, wait time.Duration) (Listeners, error) {
	q := url.Values{"state": {state}, "wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)}}
	resp, err := c.doFor(ctx, areaProcess, http.MethodGet, "/pandastack/ports?"+q.Encode(), nil, nil)
	if err != nil {
		return Listeners{}, err
	}
	var out Listeners
	if err := decodeAnswer(ctx, resp, &out); err != nil {
		return Listeners{}, err
	}
	if !out.tidy() {
		return Listeners{}, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return out, nil
}

// tidy checks what a guest says of its ports and makes its text harmless.
func (l *Listeners) tidy() bool {
	if len(l.State) > 64 || len(l.Ports) > MaxListeners {
		return false
	}
	last := 0
	for i := range l.Ports {
		p := &l.Ports[i]
		if p.Port <= last || p.Port > 65535 {
			return false
		}
		last = p.Port
		p.Process = clean(p.Process[:min(len(p.Process), maxProcessName)])
	}
	return true
}
