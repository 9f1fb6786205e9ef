package gvisor

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
)

// warmSignal tells a shell that it will wait for a while and may spend the time
// on getting ready. A sentry catches it from its first instruction on.
const warmSignal = unix.SIGUSR1

const (
	// warmHeap is about what a restore of the base template allocates.
	warmHeap = 12 << 20
	// warmStubs is how many processes of the guest find their address space
	// made: the first one, and those of a first command.
	warmStubs = 3
)

// warmSignals catches the signal from now on.
func warmSignals() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, warmSignal)
	return c
}

// warmUp does ahead what a restore would otherwise do while somebody waits. What
// fails here is done at the restore instead.
func warmUp() {
	growHeap()
	makeAddressSpaces()
	// On whichever thread this is. It may not be locked to this goroutine and end
	// with it: the guest's processes are killed with the thread that made them.
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&warmName[0])), 0, 0, 0)
}

// warmName is what a thread of a shell that has warmed up is called. The host
// reads it there: a shell has no way to speak until it is asked.
var warmName = []byte("warm\x00")

// warmLimit is how long a shell may take; it is used in any case.
const warmLimit = time.Second

// awaitWarm has a shell warm up and waits until it has: a restore at the same
// time would be in its way.
func (s *sentry) awaitWarm(ctx context.Context) {
	if unix.Kill(s.pid, warmSignal) != nil {
		return
	}
	for deadline := time.Now().Add(warmLimit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", s.pid))
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == "warm" {
				return
			}
		}
	}
}

// growHeap takes the page faults of the heap's growth, some 2 µs each on a
// virtual machine and more where a page was read first. The collector keeps the
// memory for what is allocated next: it is well below its goal.
func growHeap() {
	type node struct {
		next *node
		_    [120]byte
	}
	var list *node
	var plain [][]byte
	for range warmHeap / 3 / int(unsafe.Sizeof(node{})) {
		list = &node{next: list}
	}
	for size := 16; size <= 32<<10; size *= 2 {
		for range warmHeap * 2 / 3 / 12 / size {
			plain = append(plain, make([]byte, size))
		}
	}
	runtime.KeepAlive(list)
	runtime.KeepAlive(plain)
	list, plain = nil, nil
	runtime.GC()
}

// makeAddressSpaces makes processes for the guest's: gVisor keeps those that are
// released for the next that are needed.
func makeAddressSpaces() {
	s, err := systrap.New(platform.Options{})
	if err != nil {
		return
	}
	var spaces []platform.AddressSpace
	for range warmStubs {
		as, err := s.NewAddressSpace()
		if err != nil {
			break
		}
		spaces = append(spaces, as)
	}
	for _, as := range spaces {
		as.Release()
	}
}
