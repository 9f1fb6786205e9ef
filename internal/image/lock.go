package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a waiter asks for a lock that another process holds.
const lockPoll = 50 * time.Millisecond

// fileLock is an exclusive flock. It ends with the process, however that ends.
type fileLock struct{ f *os.File }

// tryLock takes the lock or reports that someone holds it.
func tryLock(path string) (*fileLock, bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return &fileLock{f}, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// lock waits for the lock until ctx ends.
func lock(ctx context.Context, path string) (*fileLock, error) {
	for {
		l, ok, err := tryLock(path)
		if ok || err != nil {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// lockWithin waits for a lock that is only ever held for moments.
func lockWithin(d time.Duration, path string) (*fileLock, error) {
	for end := time.Now().Add(d); ; time.Sleep(lockPoll) {
		l, ok, err := tryLock(path)
		if ok || err != nil {
			return l, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("lock %s: another process has held it for %s", path, d)
		}
	}
}

func (l *fileLock) unlock() { l.f.Close() }
