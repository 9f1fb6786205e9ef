package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	cacheFor = 30 * time.Second
	cacheMax = 4096 // identities remembered at once
)

type keyHash = [sha256.Size]byte

// cache remembers identities for a short time. Only keys that exist get in, so
// that guessing cannot fill it.
type cache struct {
	mu         sync.RWMutex
	generation uint64 // grows when anything is forgotten on purpose
	entries    map[keyHash]entry
}

type entry struct {
	id    Identity
	until time.Time
}

func (c *cache) get(h keyHash, now time.Time) (Identity, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.entries[h]
	return e.id, ok && now.Before(e.until)
}

// current is the generation to note before asking the store.
func (c *cache) current() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.generation
}

// put remembers what the store answered, unless something was revoked since
// generation: the answer may be older than the revocation.
func (c *cache) put(h keyHash, id Identity, now time.Time, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return
	}
	if len(c.entries) >= cacheMax {
		c.makeRoom(now)
	}
	if c.entries == nil {
		c.entries = make(map[keyHash]entry)
	}
	c.entries[h] = entry{id: id, until: now.Add(cacheFor)}
}

// makeRoom drops what is over, or else everything.
func (c *cache) makeRoom(now time.Time) {
	for h, e := range c.entries {
		if !now.Before(e.until) {
			delete(c.entries, h)
		}
	}
	if len(c.entries) >= cacheMax {
		clear(c.entries)
	}
}

// forget drops everything remembered and everything being asked for.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.entries)
}
