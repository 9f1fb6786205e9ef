//go:build linux

package guestd

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// killRounds bounds how often the process list is read for one kill: a tree
// that forks faster than that is left to the limit on tasks.
const killRounds = 8

func itoa(n int) string { return strconv.Itoa(n) }

// killTree kills a process and its descendants. These are found by their
// parents, and, once a parent has died, by the session it was in. The group is
// stopped first, so that it does not grow meanwhile, and nothing is killed
// before it was searched: orphans have no parent to be found by.
func killTree(leader int) {
	_ = syscall.Kill(-leader, syscall.SIGSTOP) // no such group: nothing to stop
	sessions := map[int]bool{leader: true}
	for range killRounds {
		pids := members(leader, sessions)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
		if len(pids) == 0 {
			break
		}
	}
	_ = syscall.Kill(-leader, syscall.SIGKILL) // as above; also where there is no /proc
}

// members lists the living processes of the tree under leader and of sessions,
// and adds the sessions it finds.
func members(leader int, sessions map[int]bool) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	self := os.Getpid()
	living := map[int]procStat{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self || pid == 1 {
			continue
		}
		if st, ok := readStat(pid); ok && st.state != 'Z' && st.state != 'X' {
			living[pid] = st
		}
	}
	// The session of the daemon itself is never part of a tree.
	own, _ := readStat(self)
	var out []int
	for pid, st := range living {
		for p, depth := pid, 0; p > 1 && depth < 4096; p, depth = living[p].parent, depth+1 {
			if p == leader || sessions[living[p].session] {
				out = append(out, pid)
				if st.session != own.session && st.session > 1 {
					sessions[st.session] = true
				}
				break
			}
		}
	}
	return out
}

type procStat struct {
	state                  byte
	parent, group, session int
}

// readStat reads /proc/<pid>/stat. The name in it may hold anything, so fields
// count from the last parenthesis.
func readStat(pid int) (procStat, bool) {
	data := []byte(readBounded("/proc/"+itoa(pid)+"/stat", 4096))
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return procStat{}, false
	}
	f := bytes.Fields(data[i+1:])
	if len(f) < 4 {
		return procStat{}, false
	}
	var st procStat
	st.state = f[0][0]
	for j, dst := range []*int{&st.parent, &st.group, &st.session} {
		n, err := strconv.Atoi(string(f[j+1]))
		if err != nil {
			return procStat{}, false
		}
		*dst = n
	}
	return st, true
}
