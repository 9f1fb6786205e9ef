package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// procStat gives the fields of /proc/<pid>/stat after the command name, which
// may itself hold spaces and parentheses.
func procStat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil, fmt.Errorf("/proc/%d/stat has no command", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	return f, nil
}

// startTime gives when a process started, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	f, err := procStat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// sameProcess reports whether pid is still the process that started then. A
// zombie counts: it waits for its parent, which may be us.
func sameProcess(pid int, started uint64) bool {
	if pid <= 0 {
		return false
	}
	t, err := startTime(pid)
	return err == nil && (started == 0 || t == started)
}

// running is sameProcess without zombies.
func running(pid int, started uint64) bool {
	f, err := procStat(pid)
	if err != nil || f[0] == "Z" || f[0] == "X" {
		return false
	}
	t, err := strconv.ParseUint(f[19], 10, 64)
	return err == nil && (started == 0 || t == started)
}

// waitExit blocks until the process has ended, child of ours or not, or ctx
// has. A pidfd becomes readable when its process ends, so the Go runtime's
// poller waits and no thread does.
func waitExit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// descendants lists the processes below pid, pid itself first.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(all[i])...)
	}
	return all
}

// childrenOf lists the processes that a process has started.
func childrenOf(pid int) []int {
	var pids []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// sentriesOf finds the sentry processes whose state directory is ours.
func sentriesOf(stateDir string) []int {
	want := "--root=" + runDir(stateDir)
	var pids []int
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range cmdlines {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		args := strings.Split(string(b), "\x00")
		if args[0] != sentryName {
			continue
		}
		for _, a := range args {
			if a == want {
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
					pids = append(pids, pid)
				}
				break
			}
		}
	}
	return pids
}

// halt stops the sentry and waits until it stands.
func (s *sentry) halt(ctx context.Context) error {
	if !sameProcess(s.pid, s.started) {
		return errEnded
	}
	if err := unix.Kill(s.pid, unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop the sentry: %w", err)
	}
	for delay := 50 * time.Microsecond; !s.halted(); delay = min(2*delay, 10*time.Millisecond) {
		if !running(s.pid, s.started) {
			return errEnded
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
	return nil
}

var errEnded = errors.New("the sentry has ended")

// proceed lets a stopped sentry go on.
func (s *sentry) proceed() {
	if sameProcess(s.pid, s.started) {
		unix.Kill(s.pid, unix.SIGCONT)
	}
}

// halted reports whether the sentry stands still.
func (s *sentry) halted() bool {
	f, err := procStat(s.pid)
	return err == nil && f[0] == "T"
}
