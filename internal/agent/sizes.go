package agent

import (
	"fmt"
	"runtime"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/host"
)

// Sizes of a sandbox whose template names none. A host with fewer CPUs gives
// what it has.
const (
	defaultCPU      = 2
	defaultMemoryMB = 1024
	defaultDiskMB   = 10240
)

// sizes bound a sandbox. Zero is not said.
type sizes struct {
	cpu      float64
	memoryMB int
	diskMB   int
}

func sizesOf(s host.Spec) sizes {
	return sizes{cpu: s.CPU, memoryMB: s.MemoryMB, diskMB: s.DiskMB}
}

// or fills what s does not say from d.
func (s sizes) or(d sizes) sizes {
	if s.cpu == 0 {
		s.cpu = d.cpu
	}
	if s.memoryMB == 0 {
		s.memoryMB = d.memoryMB
	}
	if s.diskMB == 0 {
		s.diskMB = d.diskMB
	}
	return s
}

func hostSizes() sizes {
	return sizes{
		cpu:      min(defaultCPU, float64(runtime.NumCPU())),
		memoryMB: defaultMemoryMB,
		diskMB:   defaultDiskMB,
	}
}

// servedBy reports whether a snapshot of size base can become a machine of size
// s. The upper layer's size is part of a snapshot's filesystem on every driver;
// CPUs and memory may change where the driver resizes.
func (s sizes) servedBy(base sizes, resize bool) bool {
	return s == base || resize && s.diskMB == base.diskMB
}

// class names the sizes in the name of a snapshot.
func (s sizes) class() string {
	return fmt.Sprintf("%gc-%dm-%dd", s.cpu, s.memoryMB, s.diskMB)
}

func (s sizes) limits() driver.Limits {
	return driver.Limits{
		CPU:         s.cpu,
		MemoryBytes: int64(s.memoryMB) << 20,
		DiskBytes:   int64(s.diskMB) << 20,
	}
}
