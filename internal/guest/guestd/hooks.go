//go:build linux

package guestd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hooksDir holds the programs that are run after every restore, before any
// other process of the machine goes on.
const hooksDir = "/etc/pandastack/on-restore.d"

// Bounds of the hooks: how many there are, and how long one and all of them may
// take. Nothing else of the sandbox runs meanwhile, and its owner waits.
const (
	maxHooks  = 64
	maxListed = 1024 // files in the directory
	hookTime  = 2 * time.Second
	hooksTime = 5 * time.Second
)

// runHooks runs the hooks one after another as root, with extra in their
// environment, and says what went wrong. They need nothing of a process that
// stands still: not even the daemon's list of accounts, unless a hook is not
// root's.
func (s *Server) runHooks(ctx context.Context, extra map[string]string) []string {
	names, warnings := s.findHooks()
	if len(names) == 0 {
		return warnings
	}
	env, _, err := s.environ(user{name: "root", home: "/root"}, extra)
	if err != nil {
		return append(warnings, "hooks: "+err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, hooksTime)
	defer cancel()
	for i, name := range names {
		if ctx.Err() != nil {
			return append(warnings, fmt.Sprintf("%d hooks from %s on were not run: those before took %v", len(names)-i, name, hooksTime))
		}
		if err := s.runHook(ctx, name, env); err != nil {
			warnings = append(warnings, "hook "+name+": "+err.Error())
		}
	}
	return warnings
}

// findHooks lists the hooks in the order in which they run, and says which
// files look like hooks but are none.
func (s *Server) findHooks() (names, warnings []string) {
	dir, err := os.OpenFile(filepath.Join(s.opt.Root, hooksDir), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []string{"hooks: " + err.Error()}
	}
	defer dir.Close()
	listed, _ := dir.Readdirnames(maxListed + 1) // at the end of the directory an error
	if len(listed) > maxListed {
		return nil, []string{fmt.Sprintf("hooks: none was run, there are more than %d files", maxListed)}
	}
	slices.Sort(listed)
	for _, name := range listed {
		switch ok, err := s.isHook(dir, name); {
		case err != nil:
			warnings = append(warnings, "hook "+name+": not run: "+err.Error())
		case ok && len(names) == maxHooks:
			return names, append(warnings, fmt.Sprintf("hooks: those from %s on were not run, at most %d are", name, maxHooks))
		case ok:
			names = append(names, name)
		}
	}
	return names, warnings
}

// isHook reports whether a file is meant to be run, with an error if it must
// not be. Hooks run as root, so no other account may be their author but the
// one that the sandbox is for.
func (s *Server) isHook(dir *os.File, name string) (bool, error) {
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
		return false, nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		return false, nil
	case st.Mode&0o002 != 0:
		return false, errors.New("everybody may write to it")
	case st.Uid == 0:
		return true, nil
	}
	if u, err := s.lookup(""); err != nil || u.uid != st.Uid {
		return false, errors.New("it belongs neither to root nor to the sandbox's user")
	}
	return true, nil
}

// runHook runs one hook until it ends or its time is over. What it prints goes
// to the log for as long as anything that it started has its output open.
func (s *Server) runHook(ctx context.Context, name string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	null, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(null)
	r, w, err := pipe()
	if err != nil {
		return err
	}
	defer syscall.Close(w)
	out := ours(r)
	path := filepath.Join(s.opt.Root, hooksDir, name)
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: []uintptr{uintptr(null), uintptr(w), uintptr(w)},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Groups: []uint32{0}}},
	}
	src := origin{serial: s.serial.Add(1), out: streamSystem}
	ended := make(chan syscall.WaitStatus, 1)
	err = s.reaper.start(ctx, func() (int, error) {
		var err error
		src.pid, err = syscall.ForkExec(path, []string{path}, attr)
		return src.pid, err
	}, func(ws syscall.WaitStatus) { ended <- ws })
	if err != nil {
		out.Close()
		if ctx.Err() != nil {
			err = errors.New("not run: another program was being started all the while")
		}
		return err
	}
	go s.logOutput(out, src)
	select {
	case ws := <-ended:
		if ws != 0 {
			return errors.New(statusText(ws))
		}
		return nil
	case <-ctx.Done():
	case <-s.stopping:
	}
	killTree(src.pid)
	return errors.New("it took too long and was killed")
}

// logOutput puts what comes from a pipe into the log until all have closed it.
func (s *Server) logOutput(f *os.File, src origin) {
	defer f.Close()
	raw, err := f.SyscallConn()
	for err == nil {
		var c *chunk
		if c, err = readChunk(raw, pipeChunk, false); c != nil {
			s.ring.add(src, c.data, false)
			chunks.Put(c)
		}
	}
	s.ring.add(src, nil, true)
}

// logLine puts a line of the daemon itself into the log.
func (s *Server) logLine(text string) {
	s.ring.add(origin{serial: s.serial.Add(1), out: streamSystem}, []byte(text), true)
}
