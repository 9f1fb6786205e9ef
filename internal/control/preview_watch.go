package control

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// Nothing in a sandbox says by itself that a port was opened. Its daemon looks
// only for as long as it is asked, and it is asked only while somebody follows
// the sandbox's events: port.opened and port.closed are told of what changes
// from then on.

const (
	portWait  = 50 * time.Second // of one question to the daemon
	portRest  = time.Second      // after an answer, for what a sandbox may cost its host
	portPause = 250 * time.Millisecond
	maxTold   = 64 // ports that are told of
)

// portWatches are the sandboxes whose ports are watched.
type portWatches struct {
	mu   sync.Mutex
	byID map[string]*portWatch
}

type portWatch struct {
	followers int
	cancel    context.CancelFunc
}

// watchPorts watches the ports of a sandbox until the last who asked for it
// calls end.
func (s *Service) watchPorts(ctx context.Context, id string) (end func()) {
	s.ports.mu.Lock()
	defer s.ports.mu.Unlock()
	w := s.ports.byID[id]
	if w == nil {
		watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
		w = &portWatch{cancel: cancel}
		if s.ports.byID == nil {
			s.ports.byID = make(map[string]*portWatch)
		}
		s.ports.byID[id] = w
		s.background.Go(func() { s.followPorts(watch, id) })
	}
	w.followers++
	return func() {
		s.ports.mu.Lock()
		defer s.ports.mu.Unlock()
		if w.followers--; w.followers == 0 {
			w.cancel()
			delete(s.ports.byID, id)
		}
	}
}

// followPorts tells of every change of what listens in a sandbox until ctx ends.
// While it does not run, it waits for the events that say that it does again.
func (s *Service) followPorts(ctx context.Context, id string) {
	news, end := s.events.follow(id)
	defer end()
	var known map[int]string
	var state string
	var asked *guest.Client
	for ctx.Err() == nil {
		rec, err := s.findAny(ctx, id)
		if api.CodeOf(err) == api.CodeSandboxNotFound {
			return
		}
		if err != nil {
			sleep(ctx, portRest)
			continue
		}
		if rec.status != api.StatusRunning {
			select {
			case <-news:
			case <-time.After(portWait):
			case <-ctx.Done():
			}
			continue
		}
		if rec.client != asked {
			asked, state = rec.client, "" // another machine
		}
		now, err := rec.client.NextPorts(ctx, state, portWait)
		told := 0
		if err == nil {
			state = now.State
			known, told = s.tellPorts(&store.Sandbox{ID: id, Org: rec.org}, known, now.Ports)
		}
		sleep(ctx, max(portRest, time.Duration(told)*portPause))
	}
}

// tellPorts tells what differs from what was known, which is nothing the first
// time, and gives what is known then.
func (s *Service) tellPorts(row *store.Sandbox, known map[int]string, ports []guest.Listener) (now map[int]string, told int) {
	now = make(map[int]string, len(ports))
	for _, p := range ports {
		if len(now) < maxTold && !internalPort(p.Port) {
			now[p.Port] = p.Process
		}
	}
	if known == nil {
		return now, 0
	}
	tell := func(event string, from, except map[int]string) {
		for port, process := range from {
			if _, ok := except[port]; ok {
				continue
			}
			data := map[string]string{"port": strconv.Itoa(port)}
			if process != "" {
				data["process"] = process
			}
			s.emit(row, event, data)
			told++
		}
	}
	tell(EventPortOpened, now, known)
	tell(EventPortClosed, known, now)
	return now, told
}
