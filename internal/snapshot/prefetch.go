package snapshot

import (
	"encoding/binary"
	"os"
	"time"
)

// Bounds on fetching ahead.
const (
	maxAhead     = 24 << 20 // content that is fetched and not read yet
	aheadReads   = 8        // at the same time
	flowAhead    = 4 << 20  // of a file that is read in order
	smallRead    = 64 << 10 // and less is more likely a machine's fault than part of reading in order
	aroundFault  = 1 << 19  // content behind a fault that is fetched with it
	orderTime    = 10 * time.Second
	maxOrder     = 1 << 16 // chunks: 4 GB of content
	maxOrderFile = 4 * maxOrder
)

// prefetcher fetches chunks before they are asked for: those that follow what is
// being read in order, and those that an earlier start of the same snapshot read,
// in its order. The reader's mutex guards it.
type prefetcher struct {
	ahead   ahead
	opened  time.Time // zero until start: what Open itself reads tells nothing
	touched []bool    // chunks that were asked for
	order   []int     // of them, those of the first moments that nothing foretold,
	inFlow  []int     // and those that were read in order
	queue   []int     // to fetch next
	learned []int     // to fetch after those
	known   int       // length of learned at first
	more    chan struct{}
}

func (p *prefetcher) init(chunks int) {
	p.touched = make([]bool, chunks)
	p.ahead.change = make(chan struct{}, 1)
	p.more = make(chan struct{}, 1)
}

// touch notes that a chunk was asked for.
func (p *prefetcher) touch(n int, inFlow bool) {
	if p.opened.IsZero() || p.touched[n] {
		return
	}
	p.touched[n] = true
	if len(p.order)+len(p.inFlow) >= maxOrder || time.Since(p.opened) > orderTime {
		return
	}
	if inFlow {
		p.inFlow = append(p.inFlow, n)
	} else {
		p.order = append(p.order, n)
	}
}

// start begins to fetch ahead.
func (r *reader) start() {
	learned := r.loadOrder()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.prefetch
	p.opened = time.Now()
	p.learned, p.known = learned, len(learned)
	r.wg.Go(r.runPrefetch)
}

// runPrefetch fetches what is queued, by several reads at a time, and stops for
// as long as enough of it waits to be read.
func (r *reader) runPrefetch() {
	reads := make(chan struct{}, aheadReads)
	for {
		select {
		case reads <- struct{}{}:
		case <-r.ctx.Done():
			return
		}
		group := r.nextAhead()
		if group == nil {
			return
		}
		r.wg.Go(func() {
			defer func() { <-reads }()
			r.fetch(group)
		})
	}
}

// nextAhead waits until there is something to fetch and room for it. It gives
// nil when the reader ends.
func (r *reader) nextAhead() []*flight {
	p := &r.prefetch
	for {
		if p.ahead.bytes.Load() < maxAhead {
			if group := r.takeAhead(); group != nil {
				return group
			}
		}
		select {
		case <-p.more:
		case <-p.ahead.change:
		case <-r.ctx.Done():
			return nil
		}
	}
}

// takeAhead takes the chunks of one read from the queue.
func (r *reader) takeAhead() []*flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.prefetch
	var group []*flight
	for len(p.queue)+len(p.learned) > 0 {
		from := &p.queue
		if len(p.queue) == 0 {
			from = &p.learned
		}
		n := (*from)[0]
		c := r.chunks[n]
		if len(group) > 0 && !adjoins(group[0].run.place, group[len(group)-1].run.place, c.place) {
			break
		}
		*from = (*from)[1:]
		if p.touched[n] {
			continue
		}
		if fl, fresh := r.flight(c, false); fresh {
			group = append(group, fl)
		}
	}
	return group
}

// flow is the place up to which a file is being read in order. Those who read it
// in parallel ask for its parts slightly out of order.
type flow struct {
	end    int64 // of what was read
	weight int64 // how much was read in order of late
	asked  int64 // up to where was fetched ahead
}

// note takes up a read, and reports whether it is part of reading the file in
// order. A stray read does not end a flow; several do.
func (w *flow) note(off, size int64) bool {
	if off > w.end+flowAhead || off+size < w.end-flowAhead {
		if w.weight /= 2; w.weight == 0 {
			*w = flow{end: off, asked: off}
		}
		return false
	}
	if off+size > w.end {
		w.weight = min(w.weight+off+size-w.end, flowAhead)
		w.end = off + size
		w.asked = max(w.asked, w.end)
	}
	return w.weight >= min(2*size, flowAhead)
}

// inFlow notes a read and reports whether it is part of reading the file in
// order. A small one is if it goes on where another ended. The caller holds the
// mutex.
func (f *remoteFile) inFlow(off, size int64) bool {
	goesOn := off == f.flow.end || off == f.last
	f.last = off + size
	return (goesOn || size > smallRead) && f.flow.note(off, size)
}

// readAround adds to what a fault makes fetch the chunks behind it that the same
// read can bring. The caller holds the mutex.
func (r *reader) readAround(fetch []*flight, last int) []*flight {
	p := &r.prefetch
	if p.opened.IsZero() || p.ahead.bytes.Load() >= maxAhead {
		return fetch
	}
	var content int64
	for n := last + 1; n < len(r.chunks) && content < aroundFault; n++ {
		c := r.chunks[n]
		if !adjoins(fetch[0].run.place, fetch[len(fetch)-1].run.place, c.place) {
			break
		}
		if fl, fresh := r.flight(c, false); fresh {
			fetch = append(fetch, fl)
		}
		content += c.size
	}
	return fetch
}

// readAhead queues what follows what is being read of a file in order. The caller
// holds the mutex.
func (r *reader) readAhead(f *remoteFile) {
	p := &r.prefetch
	if p.opened.IsZero() {
		return
	}
	to := min(f.flow.end+flowAhead, f.size)
	if to-f.flow.asked < maxRange && to < f.size {
		return // until a whole read is worth it
	}
	for i := f.runAt(f.flow.asked); i < len(f.runs) && f.start(i) < to; i++ {
		if n := f.nth[i]; n >= 0 && !p.touched[n] && len(p.queue) < len(p.touched) {
			p.queue = append(p.queue, n)
		}
	}
	f.flow.asked = to
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// loadOrder gives what an earlier reader of the snapshot was asked for. It is a
// hint: what does not fit is dropped.
func (r *reader) loadOrder() []int {
	path := r.s.path(orderDir, r.e.name())
	if fi, err := os.Stat(path); err != nil || fi.Size() > maxOrderFile {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []int
	for len(data) > 0 && len(out) < maxOrder {
		n, used := binary.Uvarint(data)
		if used <= 0 || n >= uint64(len(r.chunks)) {
			return nil
		}
		out = append(out, int(n))
		data = data[used:]
	}
	return out
}

// saveOrder writes down what was asked for first, unless an earlier reader was
// asked for more. What was read in order comes last: fetching that ahead needs no
// memory of it. It is called when the reader has ended.
func (r *reader) saveOrder() error {
	p := &r.prefetch
	order := append(p.order, p.inFlow...)
	if len(order) == 0 || len(order) < p.known {
		return nil
	}
	var data []byte
	for _, n := range order {
		data = binary.AppendUvarint(data, uint64(n))
	}
	return r.s.replaceFile(r.s.path(orderDir, r.e.name()), data, false)
}
