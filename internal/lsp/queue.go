package lsp

import (
	"context"
	"sync"
)

// queue is messages that wait for one side. Putting one never waits: who fills it
// too far is told.
type queue struct {
	mu    sync.Mutex
	cond  sync.Cond
	items [][]byte
	bytes int
	err   error // why it was closed; what is in it is still taken
}

func newQueue() *queue {
	q := &queue{}
	q.cond.L = &q.mu
	return q
}

// put reports whether there was room.
func (q *queue) put(msg []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return true // nobody waits for it any more
	}
	if len(q.items) >= queueMessages || q.bytes+len(msg) > queueBytes {
		return false
	}
	q.items = append(q.items, msg)
	q.bytes += len(msg)
	q.cond.Broadcast()
	return true
}

// take waits for a message. It gives the queue's error once that is closed and
// empty.
func (q *queue) take(ctx context.Context) ([]byte, error) {
	defer context.AfterFunc(ctx, q.wake)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && q.err == nil && ctx.Err() == nil {
		q.cond.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(q.items) == 0:
		return nil, q.err
	}
	msg := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	q.bytes -= len(msg)
	q.cond.Broadcast()
	return msg, nil
}

// room waits until little waits.
func (q *queue) room(ctx context.Context) error {
	defer context.AfterFunc(ctx, q.wake)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && ctx.Err() == nil && (q.bytes > queueHigh || len(q.items) > queueMessages/2) {
		q.cond.Wait()
	}
	return ctx.Err()
}

func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cond.Broadcast()
}

func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.cond.Broadcast()
}
