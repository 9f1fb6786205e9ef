package hold

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sync"
)

// What Pause, Freeze, Thaw and Collect are registered as: see package pages.
const (
	sinkName    = "pandastack-pause"
	freezeName  = "pandastack-freeze"
	thawName    = "pandastack-thaw"
	collectName = "pandastack-collect"
)

// Pause prepares to stop a guest. It gives what to create in its sentry, with its
// file: the guest has stopped when that is done. It stays so until the returned
// end is closed, be it by the death of this process.
func Pause() (end *os.File, sinks []seccheck.SinkConfig, files []*os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	end, far := os.NewFile(uintptr(fds[0]), "pause"), os.NewFile(uintptr(fds[1]), "pause-far")
	return end, []seccheck.SinkConfig{{Name: sinkName}}, []*os.File{far}, nil
}

// ErrNoPart is said by a sentry whose guest program never opened its socket.
var ErrNoPart = errors.New("the guest program does not take part in being paused")

// Freeze gives what to create in a sentry for every task of its guest to stand
// still until Thaw. Both are idempotent, and last longer than this process.
func Freeze() []seccheck.SinkConfig { return []seccheck.SinkConfig{{Name: freezeName}} }

// Thaw gives what to create in a sentry for its guest to go on.
func Thaw() []seccheck.SinkConfig { return []seccheck.SinkConfig{{Name: thawName}} }

// frozen is the kernel that Freeze stopped, nil when none is.
var frozen struct {
	mu     sync.Mutex
	kernel *kernel.Kernel
}

func freeze(map[string]any, *fd.FD) (seccheck.Sink, error) {
	k := running.Load()
	if k == nil {
		return nil, ErrNoPart
	}
	frozen.mu.Lock()
	defer frozen.mu.Unlock()
	if frozen.kernel == nil {
		k.Pause()
		frozen.kernel = k
	}
	return sink{}, nil
}

func thaw(map[string]any, *fd.FD) (seccheck.Sink, error) {
	frozen.mu.Lock()
	defer frozen.mu.Unlock()
	if frozen.kernel != nil {
		frozen.kernel.Unpause() // which panics where nothing is paused
		frozen.kernel = nil
	}
	return sink{}, nil
}

// Collect gives what to create in a sentry for it to return the memory that it
// needs no more to the host. It has done so when that is done.
func Collect() []seccheck.SinkConfig { return []seccheck.SinkConfig{{Name: collectName}} }

func collect(map[string]any, *fd.FD) (seccheck.Sink, error) {
	debug.FreeOSMemory()
	return sink{}, nil
}

// running is the kernel of this sentry, once its guest program has opened its
// socket or has been restored with one.
var running atomic.Pointer[kernel.Kernel]

// pause stops all tasks and lets them go on when the far end is closed.
func pause(_ map[string]any, far *fd.FD) (seccheck.Sink, error) {
	k := running.Load()
	if k == nil || far == nil {
		return nil, ErrNoPart
	}
	k.Pause()
	go func() {
		defer far.Close()
		far.Read(make([]byte, 1)) // nothing is ever written to it
		k.Unpause()
	}()
	return sink{}, nil
}

// sink is what gVisor gets for an event log.
type sink struct{ seccheck.SinkDefaults }

// Name implements seccheck.Sink.
func (sink) Name() string { return sinkName }

// Stop implements seccheck.Sink.
func (sink) Stop() {}
