package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cgroup"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

const (
	cgroupParent = "/pandastack"
	cpuPeriod    = 100_000 // microseconds
)

func cgroupName(tag, id string) string { return cgroupParent + "/" + tag + "-" + id }

// sharesPerCPU says how the CPUs are divided while there are not enough of them; a
// task of the host that is in no cgroup has 1024. A sandbox has as many as its CPUs
// would, and all sandboxes together as many as the host's CPUs: without that they
// would be one task beside the host's others.
const sharesPerCPU = 1024

func sharesOf(l driver.Limits) uint64 { return max(2, uint64(l.CPU*sharesPerCPU)) }

// setShares writes the shares of the cgroup in dir, on v2 as the weight that the
// OCI runtimes make of them.
func setShares(dir string, shares uint64) error {
	if path := filepath.Join(dir, "cpu.shares"); exists(path) {
		return os.WriteFile(path, strconv.AppendUint(nil, shares, 10), 0)
	}
	return os.WriteFile(filepath.Join(dir, "cpu.weight"), strconv.AppendUint(nil, 1+(shares-2)*9999/262142, 10), 0)
}

// newCgroup makes the cgroup of a sentry, v1 or v2, with its limits.
func newCgroup(tag, id string, l driver.Limits) (cgroup.Cgroup, error) {
	cg, err := installCgroup(tag, id, l)
	if err != nil {
		return nil, err
	}
	allowBurst(cg, l)
	cpu := cg.MakePath("cpu")
	if err := errors.Join(setShares(cpu, sharesOf(l)), setShares(filepath.Dir(cpu), uint64(runtime.NumCPU())*sharesPerCPU)); err != nil {
		removeCgroup(tag, id)
		return nil, api.Wrap(api.CodeKernelFeature, err, "cannot say how much of the CPU a sandbox may have beside others")
	}
	for _, c := range []string{"memory", "cpu", "pids"} {
		if _, err := os.Stat(cg.MakePath(c)); err != nil {
			removeCgroup(tag, id)
			return nil, api.Errorf(api.CodeKernelFeature, "the kernel's %s cgroup controller is missing, so the sandbox's limits cannot be enforced", c)
		}
	}
	return cg, nil
}

// installCgroup makes the cgroup and writes its limits. The parent can be gone at
// any moment, as whoever removes the last cgroup in it removes it too, be it
// another server: then it is made again.
func installCgroup(tag, id string, l driver.Limits) (cgroup.Cgroup, error) {
	for try := 1; ; try++ {
		cg, err := cgroup.NewFromPath(cgroupName(tag, id), false)
		if err != nil {
			return nil, api.Wrap(api.CodeKernelFeature, err, "this host has no usable cgroups")
		}
		err = cg.Install(resources(l))
		if err == nil {
			return cg, nil
		}
		// ENODEV is a write to a file whose cgroup went while it was open.
		if gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV); !gone || try == 20 {
			return nil, api.Wrap(api.CodeKernelFeature, err, "cannot make a cgroup with the sandbox's limits")
		}
	}
}

func resources(l driver.Limits) *specs.LinuxResources {
	quota, period := int64(l.CPU*cpuPeriod), uint64(cpuPeriod)
	memory := l.MemoryBytes
	return &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Memory: &specs.LinuxMemory{Limit: &memory},
		Pids:   &specs.LinuxPids{Limit: int64(l.Tasks)},
	}
}

// openCgroup finds the cgroup of a sentry that an earlier process started.
func openCgroup(tag, id string) (cgroup.Cgroup, error) {
	return cgroup.NewFromPath(cgroupName(tag, id), false)
}

// enforced is the v1 hierarchies that a sandbox is put into: those with a limit,
// a count or a switch that we use, and systemd's, which would otherwise count
// sandboxes as part of the server's unit and stop them with it.
var enforced = map[string]bool{"cpu": true, "cpuacct": true, "cpu,cpuacct": true, "memory": true, "pids": true, "systemd": true}

// joinEarly moves the sentry with this id into its v1 cgroup as soon as its
// process exists, and returns when that is done or ctx has ended. A move waits
// for the kernel, some 15 ms; meanwhile the process goes on starting.
func joinEarly(ctx context.Context, tag, id string) {
	for ctx.Err() == nil {
		for _, pid := range childrenOf(os.Getpid()) {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasSuffix(strings.TrimRight(string(b), "\x00"), "\x00"+id) {
				_ = moveToCgroup(tag, id, pid) // addToCgroup tells whether it is there
				return
			}
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// addToCgroup sees to it that a process and all below it are in their v1 cgroup.
// Children that start later are born there. On v2 the process is born there.
func addToCgroup(tag, id string, pid int) error {
	for _, p := range descendants(pid) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p)); err != nil || strings.Contains(string(b), "memory:"+cgroupName(tag, id)+"\n") {
			continue // it has ended, or is there
		}
		if err := moveToCgroup(tag, id, p); err != nil {
			return err
		}
	}
	return nil
}

// moveToCgroup moves a process in every hierarchy that counts; memory is the
// last, so that who is in that one is in all.
func moveToCgroup(tag, id string, pid int) error {
	dirs := cgroupDirs(tag, id)
	slices.SortFunc(dirs, func(a, b string) int { return strings.Compare(lastMemory(a), lastMemory(b)) })
	for _, dir := range dirs {
		if hierarchy, ok := v1Hierarchy(dir); !ok || !enforced[hierarchy] {
			continue
		}
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process %d into its cgroup: %w", pid, err)
		}
	}
	return nil
}

func lastMemory(dir string) string {
	if h, _ := v1Hierarchy(dir); h == "memory" {
		return "~" // sorts behind every other name
	}
	return dir
}

// v1Hierarchy is the name of the hierarchy that a cgroup's directory is in.
func v1Hierarchy(dir string) (string, bool) {
	rest, ok := strings.CutPrefix(dir, "/sys/fs/cgroup/")
	if !ok {
		return "", false
	}
	name, rest, _ := strings.Cut(rest, "/")
	return name, strings.HasPrefix("/"+rest, cgroupParent+"/")
}

// cgroupDirs is the directories of a sentry's cgroup: one on v2, one for each
// hierarchy on v1.
func cgroupDirs(tag, id string) []string {
	var dirs []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, _ := filepath.Glob(root + cgroupName(tag, id))
		dirs = append(dirs, found...)
	}
	return dirs
}

// removeCgroup removes the cgroup of an ended sentry, and the parent if it was
// the last one.
func removeCgroup(tag, id string) {
	for _, dir := range cgroupDirs(tag, id) {
		// The directory is busy until the kernel has let go of the last task.
		for try := 0; try < 200; try++ {
			if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		unix.Rmdir(filepath.Dir(dir)) // fails while others have theirs there
	}
}

// cgroupsOf lists the ids of sentries that have a cgroup under our tag.
func cgroupsOf(tag string) []string {
	seen := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup" + cgroupParent + "/" + tag + "-*", "/sys/fs/cgroup/*" + cgroupParent + "/" + tag + "-*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, d := range dirs {
			seen[strings.TrimPrefix(filepath.Base(d), tag+"-")] = true
		}
	}
	ids := make([]string, 0, len(seen))
	for id := range seen {
		ids = append(ids, id)
	}
	return ids
}

// readCounter reads one number from the first file that exists.
func readCounter(paths ...string) (int64, bool) {
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				return n, true
			}
		}
	}
	return 0, false
}

// oomKilled reports whether the kernel ended a task of the cgroup for memory.
func oomKilled(cg cgroup.Cgroup) bool {
	dir := cg.MakePath("memory")
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(b), "\n") {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" && f[1] != "0" {
				return true
			}
		}
	}
	return false
}

// memoryInUse is what the sandbox holds of the host's memory: its anonymous and
// shared pages, without the page cache of files it wrote, which the kernel
// takes back when it needs to.
func memoryInUse(cg cgroup.Cgroup) int64 {
	b, err := os.ReadFile(filepath.Join(cg.MakePath("memory"), "memory.stat"))
	if err != nil {
		return 0
	}
	var total int64
	for _, line := range strings.Split(string(b), "\n") {
		switch f := strings.Fields(line); {
		case len(f) != 2:
		case f[0] == "anon", f[0] == "rss", f[0] == "shmem": // v2, v1, both
			n, _ := strconv.ParseInt(f[1], 10, 64)
			total += n
		}
	}
	return total
}

// setMemoryLimit changes how much memory a sandbox may have.
func setMemoryLimit(cg cgroup.Cgroup, bytes int64) error {
	dir := cg.MakePath("memory")
	for _, name := range []string{"memory.max", "memory.limit_in_bytes"} { // v2, v1
		if path := filepath.Join(dir, name); exists(path) {
			return os.WriteFile(path, []byte(strconv.FormatInt(bytes, 10)), 0)
		}
	}
	return fmt.Errorf("no memory limit in %s", dir)
}

// lowerMemoryLimit takes back what setMemoryLimit gave. The kernel would end a
// sandbox that holds more at this moment (v2) or refuse (v1), so it has some time
// to give memory back.
func lowerMemoryLimit(cg cgroup.Cgroup, bytes int64) (err error) {
	for range 100 {
		if memoryInUse(cg) < bytes {
			if err = setMemoryLimit(cg, bytes); err == nil {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the sandbox holds more memory than its limit: %w", errors.Join(err, unix.ENOMEM))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// allowBurst lets a sandbox that was idle use a little more than its share for
// once. Its average stays bounded; without this, a start that keeps two CPUs busy
// for a moment is stopped until the end of the kernel's period of 100 ms. Kernels
// before 5.14 have no such setting and do without.
func allowBurst(cg cgroup.Cgroup, l driver.Limits) {
	dir := cg.MakePath("cpu")
	burst := []byte(strconv.FormatInt(int64(l.CPU*cpuPeriod), 10))
	for _, name := range []string{"cpu.max.burst", "cpu.cfs_burst_us"} {
		if path := filepath.Join(dir, name); exists(path) {
			os.WriteFile(path, burst, 0)
		}
	}
}
