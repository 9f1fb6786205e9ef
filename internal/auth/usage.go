package auth

import (
	"context"
	"encoding/hex"
	"sync"
	"time"
)

// flushEvery is how often uses of keys are written.
const flushEvery = 30 * time.Second

// usage collects when keys were used last until it is written. It holds at most
// as many keys as exist.
type usage struct {
	mu   sync.Mutex
	last map[keyHash]time.Time
}

func (u *usage) note(h keyHash, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = make(map[keyHash]time.Time)
	}
	u.last[h] = at
}

func (u *usage) take() map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make(map[string]time.Time, len(u.last))
	for h, at := range u.last {
		out[hex.EncodeToString(h[:])] = at
	}
	clear(u.last)
	return out
}

// flush writes what was collected. What cannot be written is lost: the time of
// last use is advice for people.
func (k *Keys) flush(ctx context.Context) {
	if err := k.store.TouchKeys(ctx, k.used.take()); err != nil {
		k.log.Warn("the last use of keys was not written", "error", err)
	}
}
