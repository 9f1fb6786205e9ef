package gvisor

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	_ "gvisor.dev/gvisor/runsc/version" // owner of runscVersion

	"github.com/pandastack/pandastack/internal/driver/gvisor/hold"
	"github.com/pandastack/pandastack/internal/driver/gvisor/pages"
)

// moduleVersion is the gVisor version in go.mod; a test compares them.
const moduleVersion = "v0.0.0-20260905035102-160fafc42237"

// patchLevel grows when something of ours changes what a snapshot contains.
const patchLevel = "2"

// runscVersion is the string that gVisor writes into a checkpoint and compares
// at restore. A build from the Go module leaves it unset, and then any two
// builds would accept each other's checkpoints.
//
//go:linkname runscVersion gvisor.dev/gvisor/runsc/version.version
var runscVersion string

// sentryName and umountCommand are how gVisor starts our binary again.
const (
	sentryName    = "runsc-sandbox"
	umountCommand = "umount"
)

// IsReexec reports whether this process was started by gVisor to be a sentry or
// one of its helpers. Such a process must call Main before anything else.
func IsReexec() bool {
	return filepath.Base(os.Args[0]) == sentryName ||
		len(os.Args) > 1 && os.Args[0] == "/proc/self/exe" && os.Args[1] == umountCommand
}

// Main runs the role that gVisor started this process for and does not return.
func Main() {
	setVersion()
	if filepath.Base(os.Args[0]) == sentryName {
		installSeccomp()
		hold.Register()
		pages.Register()
		// The time until the guest runs is spent decoding a checkpoint. A
		// collection in the middle of it would cost more than the memory
		// it frees, so the collector waits, and catches up afterwards. One that
		// starts from a disk reads all of it into memory: there it may not wait.
		if !startsFromDisk(os.Args) {
			debug.SetGCPercent(400)
		}
		go collectAfterRestore(warmSignals())
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(sentrycmd.Umount): "",
	}, nil)
	os.Exit(0)
}

// startsFromDisk reports whether a sentry's guest finds a saved upper layer.
func startsFromDisk(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		fd, ok := strings.CutPrefix(a, "--rootfs-upper-tar-fd=")
		return ok && fd != "-1"
	})
}

// collectAfterRestore gives the garbage of booting and restoring back to the
// host once the guest runs, then ends. A process that is not told to warm up is
// no shell: its guest runs by now. A shell allocates nothing while it waits, and
// several megabytes within milliseconds when it is restored.
func collectAfterRestore(warm <-chan os.Signal) {
	const (
		unknown  = 3 * time.Second // until it is clear that this is no shell
		period   = time.Second
		restored = 2 << 20
	)
	select {
	case <-warm:
		warmUp()
		base, last := allocated(), uint64(0)
		for now := base; now-base < restored || now-last > restored; now = allocated() {
			last = now
			time.Sleep(period)
		}
	case <-time.After(unknown):
	}
	debug.SetGCPercent(100)
	debug.FreeOSMemory()
}

// allocated is how many bytes the heap has given out so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
