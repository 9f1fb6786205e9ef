package agent

import (
	"sync"
	"time"
)

// A job that failed is not tried again before a pause that doubles with every
// failure in a row.
const (
	backoffFirst = 5 * time.Second
	backoffMost  = 5 * time.Minute
)

// failures remembers by key what failed and until when that answer holds.
type failures struct {
	mu    sync.Mutex
	byKey map[string]failure
}

type failure struct {
	err   error
	row   int
	until time.Time
}

// holds gives the error of a job that may not be tried again yet.
func (f *failures) holds(key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.byKey[key]; ok && time.Now().Before(e.until) {
		return e.err
	}
	return nil
}

// last gives the error that the latest try of a job ended with.
func (f *failures) last(key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byKey[key].err
}

// note takes down how a try ended.
func (f *failures) note(key string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.byKey, key)
		return
	}
	if f.byKey == nil {
		f.byKey = map[string]failure{}
	}
	row := f.byKey[key].row + 1
	pause := min(backoffFirst<<min(row-1, 10), backoffMost)
	f.byKey[key] = failure{err: err, row: row, until: time.Now().Add(pause)}
}
