//go:build linux

package guestd

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
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

// errInputRefused says that the program has closed its end, or has ended.
var errInputRefused = errors.New("the program takes no more input")

// write writes all of data and gives how much the program's pipe took. It waits
// for a program that does not read, until ctx ends.
func (in *input) write(ctx context.Context, data []byte) (int, error) {
	select {
	case <-in.turn:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { in.turn <- struct{}{} }()
	in.mu.Lock()
	f := in.file
	in.mu.Unlock()
	if f == nil {
		return 0, errInputClosed
	}
	_ = f.SetWriteDeadline(time.Time{}) // as below
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // fails only if closed, which ends the write as well
	})
	defer stop()
	n, err := f.Write(data)
	switch {
	case err != nil && ctx.Err() != nil:
		return n, ctx.Err()
	case errors.Is(err, os.ErrClosed):
		return n, errInputClosed
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO): // of a pipe, of a terminal
		return n, errInputRefused
	}
	return n, err
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
