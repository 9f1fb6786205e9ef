// Package netflow keeps the connection log of each sandbox: whom it reached, and
// whom it was not allowed to.
//
// # Bounds
//
// What a sandbox does decides how many lines there are, so everything has a bound.
// On disk a sandbox has two files of FileSize at most: the newer is written, the
// older goes when the newer is full. In memory it has maxWaiting lines that are not
// yet on disk, and all sandboxes together maxMemory. Refusals of one target within
// a minute are one line, which stays in memory for that minute so that its count
// can grow. Lines that are lost, for whichever reason, are counted: the log says
// how many there were.
//
// # Numbers
//
// A line's number is the time at which it was recorded, in microseconds, or one
// more than the last one's where that is not more. So numbers grow, over restarts
// too, without anything having to be read first. A line is numbered when it is
// first recorded; a count that grows afterwards does not give it a new number.
//
// A crash loses the lines of the last second, and refusals of the last minute.
package netflow

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Limits.
const (
	FileSize = 1 << 20 // bytes; a sandbox has two files

	maxWaiting = 512   // lines of one sandbox in memory
	maxMerged  = 256   // of these, refusals that others may be merged into
	maxMemory  = 65536 // lines of all sandboxes in memory
	maxEvents  = 60    // refusals of one sandbox that Denied hears of within a minute
	maxUnheard = 4096  // events of all sandboxes that Denied has not heard of yet
	maxName    = 253
	maxText    = 300

	mergeWindow = time.Minute
	writeEvery  = time.Second
	// graveTime is how long lines of a sandbox that was forgotten may still come.
	graveTime = 10 * time.Second
)

// Log holds the connection logs of a host. Record may be called at any time; lines
// reach the disk while Run runs.
type Log struct {
	// Denied hears of refusals, once per line and at most maxEvents times a minute
	// for a sandbox. Set it before Run, which calls it.
	Denied func(id string, c api.Connection)

	dir  string
	wake chan struct{} // has one element when there are events

	mu     sync.Mutex
	locks  map[string]*lock // of the sandboxes whose files somebody works on
	last   int64            // the highest number given
	memory int              // lines in memory
	books  map[string]*book
	graves map[string]time.Time // forgotten sandboxes, and when
	events []event
}

// lock is held while the files of a sandbox are opened, written or removed, and its
// lines go from memory to disk. It is taken before mu.
type lock struct {
	sync.Mutex
	users int // who hold it or wait for it
}

// hold takes the lock of a sandbox; the caller calls what it gives to let it go. No
// sandbox waits for the files of another.
func (l *Log) hold(id string) (release func()) {
	l.mu.Lock()
	k := l.locks[id]
	if k == nil {
		k = &lock{}
		l.locks[id] = k
	}
	k.users++
	l.mu.Unlock()
	k.Lock()
	return func() {
		k.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.locks, id)
		}
	}
}

// event is a refusal that Denied is to hear of.
type event struct {
	id string
	c  api.Connection
}

// book is what of one sandbox's log is in memory.
type book struct {
	lines   []*line
	merged  map[target]*line
	dropped int64 // not yet on disk
	events  int   // in the minute that began at since
	since   time.Time
}

// line is one line that is not yet on disk.
type line struct {
	api.Connection
	begun  time.Time
	merges bool // others may be merged into it until a minute is over
}

// target is what refusals have in common to be one line.
type target struct {
	protocol, name, address, reason string
	port                            int
}

// Open gives the logs in a directory, which is made when the first line is
// written.
func Open(dir string) *Log {
	return &Log{dir: dir, wake: make(chan struct{}, 1), locks: map[string]*lock{}, books: map[string]*book{}, graves: map[string]time.Time{}}
}

// idPattern is what names a file. Ids are the server's own; this keeps it so.
var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`) })

// Record takes a line of a sandbox's log. It does not wait for anything but other
// calls of it: a line for which there is no room is counted and dropped.
func (l *Log) Record(id string, c api.Connection) {
	if !idPattern().MatchString(id) {
		return
	}
	c.Name, c.Reason = c.Name[:min(len(c.Name), maxName)], c.Reason[:min(len(c.Reason), maxText)]
	now := time.Now()
	if c.Time.IsZero() {
		c.Time = now
	}
	c.Time = c.Time.UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, dead := l.graves[id]; dead && now.Sub(at) < graveTime {
		return
	}
	b := l.books[id]
	if b == nil {
		b = &book{merged: map[target]*line{}}
		l.books[id] = b
	}
	denied := c.Verdict == api.VerdictDenied
	key := target{c.Protocol, c.Name, c.Address, c.Reason, c.Port}
	if old := b.merged[key]; denied && old != nil && now.Sub(old.begun) < mergeWindow {
		old.Count = max(old.Count, 1) + max(c.Count, 1)
		old.Sent, old.Received = old.Sent+c.Sent, old.Received+c.Received
		return
	}
	if len(b.lines) >= maxWaiting || l.memory >= maxMemory {
		b.dropped++
		return
	}
	n := &line{Connection: c, begun: now}
	l.last = max(l.last+1, now.UnixMicro())
	n.ID = l.last
	b.lines = append(b.lines, n)
	l.memory++
	if denied {
		l.deny(id, b, n, key)
	}
}

// deny opens a line for others to be merged into, and has Denied told of it.
func (l *Log) deny(id string, b *book, n *line, key target) {
	if len(b.merged) < maxMerged || b.merged[key] != nil {
		if old := b.merged[key]; old != nil {
			old.merges = false // its minute is over
		}
		n.merges = true
		b.merged[key] = n
	}
	if n.begun.Sub(b.since) >= time.Minute {
		b.since, b.events = n.begun, 0
	}
	if b.events++; b.events > maxEvents || len(l.events) >= maxUnheard {
		return
	}
	l.events = append(l.events, event{id, n.Connection})
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes lines to disk, and calls Denied, until ctx ends. Then it writes what
// there is.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
			l.tell()
		case <-tick.C:
			l.write(false)
		case <-ctx.Done():
			l.tell()
			l.write(true)
			return nil
		}
	}
}

// tell calls Denied for what it has not heard of.
func (l *Log) tell() {
	l.mu.Lock()
	events := l.events
	l.events = nil
	l.mu.Unlock()
	for _, e := range events {
		if l.Denied != nil {
			l.Denied(e.id, e.c)
		}
	}
}

// Forget removes the log of a sandbox, and drops what still comes of it. Until then
// lines are taken, whether the sandbox still runs or not. It waits for no other
// sandbox's files, and not for those who read.
func (l *Log) Forget(id string) {
	defer l.hold(id)()
	l.mu.Lock()
	l.discard(id)
	l.graves[id] = time.Now()
	l.mu.Unlock()
	l.remove(id)
}

// discard drops what is in memory of a sandbox.
func (l *Log) discard(id string) {
	if b := l.books[id]; b != nil {
		l.memory -= len(b.lines)
		delete(l.books, id)
	}
}
