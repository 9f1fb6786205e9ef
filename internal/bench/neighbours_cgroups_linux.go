package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	cgroupMount  = "/sys/fs/cgroup"
	cgroupPrefix = "pandastack-bench-" // and the process id of the run
)

// sweepCgroups removes the cgroups of runs that were killed. It is best effort:
// they are empty and hinder nobody.
func sweepCgroups() {
	for _, dir := range cgroupDirs(cgroupPrefix + "*") {
		name := filepath.Base(dir)
		pid, err := strconv.Atoi(strings.TrimPrefix(name, cgroupPrefix))
		if err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, fs.ErrNotExist) {
			removeCgroups(name)
		}
	}
}

// removeCgroups removes a cgroup of the top level and those below it from every
// hierarchy. They must be empty.
func removeCgroups(name string) error {
	var errs []error
	for _, top := range cgroupDirs(name) {
		var dirs []string
		filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("bench: remove a cgroup: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// cgroupDirs finds cgroups of the top level: of the one hierarchy of version 2,
// or of each of version 1.
func cgroupDirs(pattern string) []string {
	one, _ := filepath.Glob(filepath.Join(cgroupMount, pattern))
	many, _ := filepath.Glob(filepath.Join(cgroupMount, "*", pattern))
	dirs := append(one, many...)
	// Version 1 has links such as cpu -> cpu,cpuacct; one name is enough.
	return slices.DeleteFunc(dirs, func(d string) bool {
		info, err := os.Lstat(filepath.Dir(d))
		return err != nil || info.Mode()&fs.ModeSymlink != 0
	})
}
