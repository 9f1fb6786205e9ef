package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes where a run took place.
type Machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	MemoryMB int     `json:"memory_mb"`
	Kernel   string  `json:"kernel"`
	Arch     string  `json:"arch"`
	Virt     bool    `json:"hardware_virtualisation"`
	Load     float64 `json:"load_before"`
}

func (m Machine) String() string {
	virt := "without hardware virtualisation"
	if m.Virt {
		virt = "with hardware virtualisation"
	}
	return fmt.Sprintf("%d x %s (%s), %d MB, Linux %s, %s, load %.1f", m.Cores, m.CPU, m.Arch, m.MemoryMB, m.Kernel, virt, m.Load)
}

// ThisMachine reads the description from the kernel; what it does not say stays
// empty.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Arch: runtime.GOARCH}
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	for _, line := range strings.Split(read("/proc/cpuinfo"), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name":
			m.CPU = strings.TrimSpace(value)
		case "flags":
			m.Virt = strings.Contains(value, " vmx") || strings.Contains(value, " svm")
		}
	}
	if f := strings.Fields(read("/proc/meminfo")); len(f) > 1 {
		kb, _ := strconv.Atoi(f[1])
		m.MemoryMB = kb / 1024
	}
	if f := strings.Fields(read("/proc/loadavg")); len(f) > 0 {
		m.Load, _ = strconv.ParseFloat(f[0], 64)
	}
	return m
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// proportionalMemory is the PSS in bytes of a process and everything below it:
// memory that others share counts by its share.
func proportionalMemory(pid int) (int64, bool) {
	if pid <= 0 {
		return 0, false
	}
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		stat := read(d + "/stat")
		if i := strings.LastIndex(stat, ")"); i > 0 {
			if f := strings.Fields(stat[i+1:]); len(f) > 1 {
				parent, _ := strconv.Atoi(f[1])
				child, _ := strconv.Atoi(filepath.Base(d))
				children[parent] = append(children[parent], child)
			}
		}
	}
	var total int64
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
		for _, line := range strings.Split(read(fmt.Sprintf("/proc/%d/smaps_rollup", all[i])), "\n") {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kb, _ := strconv.ParseInt(f[1], 10, 64)
				total += kb << 10
			}
		}
	}
	return total, total > 0
}
