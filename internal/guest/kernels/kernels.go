// Package kernels runs code contexts: interpreters that keep their state from
// one piece of code to the next.
//
// # Terms
//
// A language is what code is written in. A kernel is one process of a language's
// driver, a script of this package that the interpreter runs. A context is what
// a client names: it has at most one kernel, which is started when it is first
// needed, and again when it has ended. An execution is one piece of code; those
// of one context come one after another, in the order in which they asked.
//
// # Driver
//
// A driver reads commands on descriptor 3 and writes events on descriptor 4, one
// JSON object a line (the shell, which cannot read JSON, reads fields that end
// with NUL). It says ready once, and done after every command; its other events
// are those that clients get: stdout, stderr, result, error; and sync, which is
// answered with an empty line once what came before it was taken. What child
// processes write to descriptors 1 and 2 is read here and becomes stdout and
// stderr of the execution as well; what was written before done is part of it.
//
// # Bounds
//
// Nothing is kept for a client that reads slowly: the kernel's pipes fill and it
// waits. An event has at most MaxEvent bytes, and a kernel that sends more is
// ended. What a kernel writes while nothing runs goes to the log.
//
// # Interrupts
//
// An execution that ran too long, or whose client has left, is interrupted with
// SIGINT, again each second, and after some of them its kernel is killed. In a
// copy of a machine its client has not left: it is the other's (Detach).
package kernels

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Bounds.
const (
	MaxCode     = 8 << 20  // bytes of one piece of code
	MaxEvent    = 16 << 20 // bytes of one event
	maxContexts = 64
)

// Times of a kernel's life.
const (
	keepalive  = 5 * time.Second // of silence
	startLimit = 60 * time.Second
	interrupts = 5 // before the kernel is killed
	patience   = time.Second
	// restored is how long after its client is gone code may run on: in a
	// copied machine the connection ends a moment before the daemon hears that
	// it is one.
	restored   = time.Second
	lastEvents = 300 * time.Millisecond // after its end
)

// Errors of requests.
var (
	ErrNotFound = errors.New("context not found")
	ErrTooMany  = errors.New("there are too many contexts")
	ErrDeleted  = errors.New("the context was deleted")
)

// InvalidError is a request that cannot be served as it is.
type InvalidError string

func (e InvalidError) Error() string { return string(e) }

// Program is a driver to start.
type Program struct {
	Path string
	Args []string
	Env  map[string]string // beside that of every program
	Dir  string
}

// Process is a driver that runs.
type Process struct {
	PID            int
	Commands       *os.File // to its descriptor 3
	Events         *os.File // from its descriptor 4
	Stdout, Stderr *os.File
	Done           <-chan struct{} // closed when it has ended
	Status         func() string   // how; after Done
	Interrupt      func()          // SIGINT to it and what it started
	Signal         func(syscall.Signal)
	Kill           func() // with all that it started
	Log            func(stderr bool, data []byte)
}

// System is what the machine does for contexts.
type System interface {
	// Start runs a program as the machine's user.
	Start(ctx context.Context, p Program) (*Process, error)
	// Has reports whether a program is installed.
	Has(program string) bool
	// Home is where contexts start.
	Home() string
	// Environ is the environment that every program is given.
	Environ() map[string]string
}
