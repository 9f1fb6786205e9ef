package control

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
	"golang.org/x/sync/errgroup"
)

const (
	minLook             = time.Second // between two looks at one sandbox
	maxLook             = 15 * time.Second
	looksTogether       = 8
	defaultBusyPercent  = 2
	defaultTrafficBytes = 1024
	maxIdleSeconds      = 30 * 24 * 3600
)

// idler knows the running sandboxes that go to sleep by themselves.
type idler struct {
	mu   sync.Mutex
	byID map[string]*watch
	kick chan struct{}
}

// watch is what is known of one of them. Its idleness counts from the moment the
// watch began: a restart of the server or a new policy begins it anew. All but
// the policy belongs to the loop.
type watch struct {
	policy api.IdlePolicy
	used   time.Time // last time it was seen in use, or when the watch began
	next   time.Time // look
	sample *sample
}

// sample is what a sandbox had used at one look.
type sample struct {
	at         time.Time
	cpuSeconds float64
	traffic    int64
}

// note takes in how a row is now.
func (i *idler) note(row *store.Sandbox, u *uses) {
	wanted := row.Status == api.StatusRunning && row.Idle != nil && row.Idle.TimeoutSeconds > 0
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.byID[row.ID]
	switch {
	case !wanted && w == nil, wanted && w != nil && w.policy == *row.Idle:
		return
	case !wanted:
		delete(i.byID, row.ID)
		u.watch(row.ID, false)
		return
	}
	if i.byID == nil {
		i.byID = make(map[string]*watch)
	}
	at := time.Now()
	w = &watch{policy: *row.Idle, used: at}
	w.next = at.Add(w.timeout() / 2)
	i.byID[row.ID] = w
	u.watch(row.ID, true)
	select {
	case i.kick <- struct{}{}:
	default:
	}
}

// forget ends a watch.
func (i *idler) forget(id string, u *uses) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.byID, id)
	u.watch(id, false)
}

// due gives the watches whose look is due and when the next of the others is.
func (i *idler) due(at time.Time) (looks map[string]*watch, next time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	looks = make(map[string]*watch)
	next = at.Add(maxLook)
	for id, w := range i.byID {
		if !w.next.After(at) {
			looks[id] = w
		} else if w.next.Before(next) {
			next = w.next
		}
	}
	return looks, next
}

func (w *watch) timeout() time.Duration { return time.Duration(w.policy.TimeoutSeconds) * time.Second }

// every is how long to wait between two looks, in which use is measured.
func (w *watch) every() time.Duration { return min(max(w.timeout()/4, minLook), maxLook) }

// runIdle puts sandboxes to sleep that are not used until ctx ends.
func (s *Service) runIdle(ctx context.Context) {
	for ctx.Err() == nil {
		rows, err := s.store.AllSandboxes(ctx)
		if err == nil {
			for i := range rows {
				s.idler.note(&rows[i], &s.uses)
			}
			break
		}
		s.log.Warn("idle sandboxes stay awake until the database answers", "error", err)
		sleep(ctx, reapRetry)
	}
	for ctx.Err() == nil {
		looks, _ := s.idler.due(time.Now())
		var g errgroup.Group
		g.SetLimit(looksTogether)
		for id, w := range looks {
			g.Go(func() error { s.look(ctx, id, w); return nil })
		}
		_ = g.Wait() // its functions give no errors
		_, next := s.idler.due(time.Now())
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-s.idler.kick:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// look decides about one sandbox: it is measured only when it could go to sleep
// soon, and goes when it has been quiet for its whole time.
func (s *Service) look(ctx context.Context, id string, w *watch) {
	at := time.Now()
	underWay, last := s.uses.get(id)
	if last.After(w.used) {
		w.used = last
	}
	if underWay > 0 && !w.policy.IgnoreStreams {
		w.used, w.sample, w.next = at, nil, at.Add(w.every())
		return
	}
	if half := w.used.Add(w.timeout() / 2); at.Before(half) {
		w.sample, w.next = nil, half
		return
	}
	quiet := s.measure(ctx, id, w, at)
	if quiet && at.Sub(w.used) >= w.timeout() {
		s.fallAsleep(ctx, id, w)
		at = time.Now()
	}
	w.next = at.Add(w.every())
	if over := w.used.Add(w.timeout()); over.Before(w.next) {
		w.next = over
	}
	if soonest := at.Add(minLook / 2); w.next.Before(soonest) {
		w.next = soonest // a shorter look would say little
	}
}

// measure compares what a sandbox has used with the look before and reports
// whether it was quiet in between.
func (s *Service) measure(ctx context.Context, id string, w *watch, at time.Time) (quiet bool) {
	if w.policy.IgnoreProcesses && w.policy.IgnoreTraffic {
		return true
	}
	usage, err := s.host.Usage(ctx, id)
	if err != nil {
		w.sample = nil // it may be ending; without a figure it is not quiet
		return false
	}
	before := w.sample
	w.sample = &sample{at: at, cpuSeconds: usage.CPUSeconds, traffic: usage.RxBytes + usage.TxBytes}
	if before == nil {
		return false
	}
	busyAbove, trafficAbove := w.policy.CPUPercent, w.policy.TrafficBytes
	if busyAbove == 0 {
		busyAbove = defaultBusyPercent
	}
	if trafficAbove == 0 {
		trafficAbove = defaultTrafficBytes
	}
	percent := 100 * (w.sample.cpuSeconds - before.cpuSeconds) / at.Sub(before.at).Seconds()
	busy := !w.policy.IgnoreProcesses && percent > busyAbove
	traffic := !w.policy.IgnoreTraffic && w.sample.traffic-before.traffic > trafficAbove
	if busy || traffic {
		w.used = at
		return false
	}
	return true
}

// fallAsleep hibernates a sandbox unless it came into use. New requests wait
// from the moment the record is held: one that came before is counted, so that
// none is cut off.
func (s *Service) fallAsleep(ctx context.Context, id string, w *watch) {
	release, ok := s.locks.tryTake(id)
	if !ok {
		return // something is done with it
	}
	defer release()
	row, err := s.current(ctx, id)
	if err != nil || row == nil || row.Status != api.StatusRunning || row.Idle == nil || *row.Idle != w.policy {
		return
	}
	ctx, cancel := within(ctx, changeWithin)
	defer cancel()
	s.records.hold(row)
	underWay, last := s.uses.get(id)
	if last.After(w.used) || underWay > 0 && !w.policy.IgnoreStreams {
		s.remember(row)
		return
	}
	if err := s.hibernate(ctx, row, "idle"); err != nil {
		s.log.Warn("an idle sandbox did not go to sleep", "sandbox_id", id, "org", row.Org, "error", err)
		w.used = time.Now() // not again at once
	}
}

// idlePolicy makes one policy of a policy and its short form, where absent
// parts are those of old. Nil is never.
func idlePolicy(old, long *api.IdlePolicy, short *int, field string) (*api.IdlePolicy, error) {
	var p api.IdlePolicy
	if old != nil {
		p = *old
	}
	if long != nil {
		p = *long
	}
	name := "idle.timeout_seconds"
	if short != nil {
		name = field
		if long != nil && long.TimeoutSeconds != 0 && long.TimeoutSeconds != *short {
			return nil, invalid(field, "%s and idle.timeout_seconds differ; give one of the two", field)
		}
		p.TimeoutSeconds = *short
	}
	if t := p.TimeoutSeconds; t < 0 || t > maxIdleSeconds {
		return nil, invalid(name, "%s must be between 0 and %d", name, maxIdleSeconds)
	}
	if c := p.CPUPercent; math.IsNaN(c) || c < 0 || c > 100 {
		return nil, invalid("idle.cpu_percent", "idle.cpu_percent must be between 0 and 100")
	}
	if p.TrafficBytes < 0 {
		return nil, invalid("idle.traffic_bytes", "idle.traffic_bytes may not be negative")
	}
	if p.TimeoutSeconds == 0 {
		return nil, nil
	}
	return &p, nil
}
