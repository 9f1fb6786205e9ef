//go:build linux

package guestd

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// input is the writing end of a process's standard input or terminal. One
// writer at a time, so that pieces do not mix.
type input struct {
	turn chan struct{} // holds one token: the right to write

	mu   sync.Mutex
	file *os.File // nil when closed or never open
}

func newInput(f *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), file: f}
	in.turn <- struct{}{}
	return in
}

var errInputClosed = errors.New("stdin is not enabled or already closed")

// write writes all of data. It waits for a program that does not read, until
// ctx ends; part of data may have been written then.
func (in *input) write(ctx context.Context, data []byte) error {
	select {
	case <-in.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { in.turn <- struct{}{} }()
	in.mu.Lock()
	f := in.file
	in.mu.Unlock()
	if f == nil {
		return errInputClosed
	}
	_ = f.SetWriteDeadline(time.Time{}) // as below
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // fails only if closed, which ends the write as well
	})
	defer stop()
	_, err := f.Write(data)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrClosed):
		return errInputClosed
	}
	return err
}

// close is idempotent. A write that waits is given up.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file != nil {
		in.file.Close()
		in.file = nil
	}
}
