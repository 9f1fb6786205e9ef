package snapshot

import (
	"container/list"
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
)

// cacheLimit bounds the memory of a store's cache of chunks, which all of its
// readers share. It need not hold an image: machines read most pages once, so it
// only has to bridge the time between fetching ahead and reading.
const cacheLimit = 64 << 20

// chunkCache keeps chunks that were used or fetched last, by their content's
// names, so that snapshots which share chunks share them here too.
type chunkCache struct {
	mu    sync.Mutex
	limit int
	size  int
	order *list.List // of *cached, the last used first
	byID  map[chunkID]*list.Element
}

type cached struct {
	id    chunkID
	data  []byte
	ahead *ahead // who fetched it and waits for it to be read; nil once it was
}

// ahead counts what was fetched ahead and is not read yet.
type ahead struct {
	bytes  atomic.Int64
	change chan struct{} // told when it shrinks
}

func (a *ahead) add(n int) {
	if a.bytes.Add(int64(n)); n < 0 {
		select {
		case a.change <- struct{}{}:
		default:
		}
	}
}

func newChunkCache(limit int) *chunkCache {
	return &chunkCache{limit: limit, order: list.New(), byID: map[chunkID]*list.Element{}}
}

// get gives a chunk that is to be read now.
func (c *chunkCache) get(id chunkID) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byID[id]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(el)
	e := el.Value.(*cached)
	e.read()
	return e.data, true
}

// has reports whether a chunk is here without counting as a use.
func (c *chunkCache) has(id chunkID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.byID[id]
	return ok
}

// put takes up a chunk; by is set where it was fetched ahead.
func (c *chunkCache) put(id chunkID, data []byte, by *ahead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byID[id]; ok {
		return
	}
	if by != nil {
		by.add(len(data))
	}
	c.byID[id] = c.order.PushFront(&cached{id, data, by})
	c.size += len(data)
	for c.size > c.limit {
		el := c.order.Back()
		e := c.order.Remove(el).(*cached)
		delete(c.byID, e.id)
		c.size -= len(e.data)
		e.read()
	}
}

func (e *cached) read() {
	if e.ahead != nil {
		e.ahead.add(-len(e.data))
		e.ahead = nil
	}
}

// evict makes room: while what this host keeps of packed snapshots is above
// CacheBytes, the one that was opened longest ago and is not open goes.
func (s *Store) evict(ctx context.Context) error {
	for {
		e, raw := s.victim()
		if e == nil {
			return nil
		}
		if raw {
			there, err := s.stillPacked(ctx, e)
			if err != nil {
				return err
			} else if !there {
				continue
			}
		}
		if err := s.step("evict.remove", func() error { return s.evictEntry(e) }); err != nil {
			return err
		}
	}
}

// victim gives the snapshot whose files on this host go next, if any must, and
// whether its raw form is among them.
func (s *Store) victim() (oldest *entry, raw bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var total int64
	for _, e := range s.snaps {
		n := e.rawBytes + e.localBytes
		if !e.packed || !e.raw && n == 0 {
			continue
		}
		total += n
		if e.refs == 0 && (oldest == nil || e.used.Before(oldest.used)) {
			oldest = e
		}
	}
	if oldest == nil || total <= s.cfg.CacheBytes {
		return nil, false
	}
	return oldest, oldest.raw
}

// stillPacked asks the blob store whether a snapshot whose raw form is to go is
// really there. If it is not, the raw form is all there is, and is packed again.
func (s *Store) stillPacked(ctx context.Context, e *entry) (bool, error) {
	_, err := s.cfg.Blobs.Stat(ctx, s.manifestKey(e.id, e.gen))
	if err == nil {
		return true, nil
	}
	if !missing(err) {
		return false, storeError(err, "look for the manifest of snapshot %s", e.id)
	}
	s.cfg.Log.Error("a snapshot is missing from the blob store and will be packed again", "snapshot", e.id)
	s.mu.Lock()
	e.packed, e.meta.Packing = false, Packing{}
	s.mu.Unlock()
	return false, s.removeTree(s.path(localDir, e.name()))
}

// evictEntry removes the files unless someone opened the snapshot meanwhile.
func (s *Store) evictEntry(e *entry) error {
	out, err := s.moveOut(e)
	for _, dir := range out {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// moveOut holds the store's mutex while it renames, so that nobody opens the
// files on their way out.
func (s *Store) moveOut(e *entry) (out []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refs > 0 || e.gone || !e.packed {
		return nil, nil
	}
	for _, dir := range []string{s.path(rawDir, e.name()), s.path(localDir, e.name(), filesDir)} {
		tmp, err := s.setAside(dir)
		if err != nil {
			return out, err
		}
		out = append(out, tmp)
	}
	e.raw, e.rawBytes, e.localBytes = false, 0, 0
	return out, nil
}
