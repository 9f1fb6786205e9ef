package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Bounds on how a reader asks the blob store.
const (
	maxRange     = 1 << 20         // of one read, in stored bytes
	maxGap       = 32 << 10        // unwanted bytes that a read takes along
	maxReads     = 16              // at the same time, for those who wait
	readTries    = 3               // of one read
	readPause    = time.Second / 5 // before the second try; it doubles
	readDeadline = 30 * time.Second
)

// reader reads the files of one packed snapshot. Chunks are fetched once at a
// time, several in one read where they lie side by side, verified, and kept for
// a while in the store's cache.
type reader struct {
	s      *Store
	e      *entry
	m      *manifest
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	chunks []*run // of all files, in their order
	files  []*remoteFile
	reads  chan struct{} // bounds reads that someone waits for
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	flights  map[chunkID]*flight
	prefetch prefetcher
}

// flight is a chunk on its way.
type flight struct {
	run    *run
	wanted bool // by someone who waits; guarded by the reader's mutex
	done   chan struct{}
	data   []byte
	err    error
}

// remoteFile serves one file. It implements io.ReaderAt.
type remoteFile struct {
	r     *reader
	name  string
	size  int64
	runs  []run
	ends  []int64 // of each run
	first int     // position in the reader's chunks of the file's first
	nth   []int   // of each run: its position, or -1 of zeros
	flow  flow    // guarded by the reader's mutex, like
	last  int64   // the end of the last read
}

// newReader makes a reader that lives until close, whatever becomes of ctx.
func (s *Store) newReader(ctx context.Context, e *entry, m *manifest) *reader {
	r := &reader{s: s, e: e, m: m, reads: make(chan struct{}, maxReads), flights: map[chunkID]*flight{}}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i, f := range m.meta.Files {
		rf := &remoteFile{r: r, name: f.Name, size: f.Size, runs: m.files[i], first: len(r.chunks)}
		var end int64
		for j := range rf.runs {
			run := &rf.runs[j]
			end += run.size
			rf.ends = append(rf.ends, end)
			if run.zeros {
				rf.nth = append(rf.nth, -1)
				continue
			}
			rf.nth = append(rf.nth, len(r.chunks))
			r.chunks = append(r.chunks, run)
		}
		r.files = append(r.files, rf)
	}
	r.prefetch.init(len(r.chunks))
	return r
}

// served gives the files that a Source serves; nil if there are none.
func (r *reader) served() map[string]io.ReaderAt {
	var out map[string]io.ReaderAt
	for _, f := range r.files {
		if f.size < smallFile {
			continue
		}
		if out == nil {
			out = map[string]io.ReaderAt{}
		}
		out[f.name] = f
	}
	return out
}

// close ends every read that is under way.
func (r *reader) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
	return r.saveOrder()
}

// Size is of the file.
func (f *remoteFile) Size() int64 { return f.size }

// ReadAt reads the file. It may be called at the same time by many.
func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("read before the start of a file")
	}
	if off >= f.size {
		return 0, io.EOF
	}
	var eof error
	if left := f.size - off; int64(len(p)) > left {
		p, eof = p[:left], io.EOF
	}
	first := f.runAt(off)
	var want []int
	for i := first; i < len(f.runs) && f.start(i) < off+int64(len(p)); i++ {
		if n := f.nth[i]; n >= 0 {
			want = append(want, n)
		}
	}
	flights, err := f.r.get(f, off, int64(len(p)), want)
	if err != nil {
		return 0, err
	}
	n := 0
	for i := first; n < len(p); i++ {
		run, at := f.runs[i], off+int64(n)-f.start(i)
		part := p[n:min(int64(len(p)), int64(n)+run.size-at)]
		if run.zeros {
			clear(part)
		} else {
			data, err := f.r.wait(flights[0])
			if err != nil {
				return n, err
			}
			copy(part, data[at:])
			flights = flights[1:]
		}
		n += len(part)
	}
	return n, eof
}

// runAt gives the position of the run that holds the byte at off.
func (f *remoteFile) runAt(off int64) int {
	return sort.Search(len(f.ends), func(i int) bool { return f.ends[i] > off })
}

func (f *remoteFile) start(i int) int64 { return f.ends[i] - f.runs[i].size }

// get gives the flights of chunks that someone waits for, and starts those that
// are neither here nor under way.
func (r *reader) get(f *remoteFile, off, size int64, want []int) ([]*flight, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("read snapshot %s: it is closed", r.e.id)
	}
	inFlow := f.inFlow(off, size)
	out := make([]*flight, 0, len(want))
	var fetch []*flight
	for _, n := range want {
		fl, fresh := r.flight(r.chunks[n], true)
		if out = append(out, fl); fresh {
			fetch = append(fetch, fl)
		}
		r.prefetch.touch(n, inFlow)
	}
	if !inFlow && len(fetch) > 0 {
		fetch = r.readAround(fetch, want[len(want)-1])
	}
	for _, group := range groups(fetch) {
		r.wg.Go(func() {
			r.reads <- struct{}{}
			defer func() { <-r.reads }()
			r.fetch(group)
		})
	}
	if inFlow {
		r.readAhead(f)
	}
	return out, nil
}

// flight gives the flight of a chunk; fresh ones are for the caller to fetch. Of
// a chunk that is in the cache it has ended already.
func (r *reader) flight(c *run, use bool) (fl *flight, fresh bool) {
	if fl := r.flights[c.chunk]; fl != nil {
		fl.wanted = fl.wanted || use
		return fl, false
	}
	fl = &flight{run: c, wanted: use, done: make(chan struct{})}
	if use {
		if data, ok := r.s.cache.get(c.chunk); ok {
			fl.data = data
			close(fl.done)
			return fl, false
		}
	} else if r.s.cache.has(c.chunk) {
		return nil, false
	}
	r.flights[c.chunk] = fl
	return fl, true
}

func (r *reader) wait(fl *flight) ([]byte, error) {
	<-fl.done
	if fl.err != nil {
		return nil, fl.err
	}
	return fl.data, nil
}

// groups puts flights together that one read can fetch.
func groups(flights []*flight) [][]*flight {
	var out [][]*flight
	start := 0
	for i := 1; i <= len(flights); i++ {
		if i == len(flights) || !adjoins(flights[start].run.place, flights[i-1].run.place, flights[i].run.place) {
			out = append(out, flights[start:i])
			start = i
		}
	}
	return out
}

// adjoins reports whether a read from first to last may go on to next.
func adjoins(first, last, next place) bool {
	end := last.off + last.size
	return next.pack == last.pack && next.off >= end && next.off-end <= maxGap && next.off+next.size-first.off <= maxRange
}

// fetch reads a group of chunks and ends their flights.
func (r *reader) fetch(group []*flight) {
	first, last := group[0].run.place, group[len(group)-1].run.place
	buf := make([]byte, last.off+last.size-first.off)
	n, err := r.readRange(r.m.packs[first.pack], buf, int64(first.off))
	for _, fl := range group {
		at := int(fl.run.place.off - first.off)
		if end := at + int(fl.run.place.size); end <= n {
			fl.data, fl.err = r.decode(fl.run, buf[at:end])
		} else {
			fl.err = err
		}
		r.land(fl)
	}
}

// land ends a flight. What nobody waits for yet counts as fetched ahead.
func (r *reader) land(fl *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flights, fl.run.chunk)
	if fl.err == nil {
		by := &r.prefetch.ahead
		if fl.wanted {
			by = nil
		}
		r.s.cache.put(fl.run.chunk, fl.data, by)
	}
	close(fl.done)
}

// readRange reads part of a pack. It gives what it could read: a pack that is
// too short harms only the chunks beyond its end.
func (r *reader) readRange(pack packID, buf []byte, off int64) (n int, err error) {
	pause := readPause
	for try := 1; ; try++ {
		n, err = r.readOnce(pack, buf, off)
		switch {
		case n == len(buf):
			return n, nil
		case missing(err):
			return 0, corrupt(r.e.id, "pack %s is missing from the blob store", pack)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return n, corrupt(r.e.id, "pack %s is cut off", pack)
		case r.ctx.Err() != nil:
			return 0, fmt.Errorf("read snapshot %s: it is closed", r.e.id)
		}
		if err = storeError(err, "read snapshot %s", r.e.id); try == readTries || api.CodeOf(err) != api.CodeSnapshotStore {
			return 0, err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-r.ctx.Done():
		}
	}
}

func (r *reader) readOnce(pack packID, buf []byte, off int64) (int, error) {
	ctx, cancel := context.WithTimeout(r.ctx, readDeadline)
	defer cancel()
	return r.s.cfg.Blobs.ReadAt(ctx, r.s.packKey(pack), buf, off)
}

// decode gives the content of a chunk, verified.
func (r *reader) decode(c *run, stored []byte) ([]byte, error) {
	data, err := r.s.keys.open(stored, c.chunk[:])
	if err == nil && c.place.squeezed {
		data, err = r.s.codec.expand(data, int(c.size))
	} else if err == nil && !r.s.keys.sealed() {
		data = append([]byte(nil), data...) // not to keep the whole read
	}
	if err != nil {
		return nil, corrupt(r.e.id, "a chunk in pack %s is damaged: %w", r.m.packs[c.place.pack], err)
	}
	if int64(len(data)) != c.size || r.s.keys.id(data) != c.chunk {
		return nil, corrupt(r.e.id, "a chunk in pack %s does not match its digest", r.m.packs[c.place.pack])
	}
	return data, nil
}
