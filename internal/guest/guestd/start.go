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
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
)

// defaultPath is the PATH of a sandbox whose image says nothing.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// launch is everything a fork needs.
type launch struct {
	path string
	argv []string
	attr syscall.ProcAttr
	user string
}

// start runs a program. The subscriber is attached before the first output can
// be read. A lifetime of 0 has no end. The end of ctx changes nothing: a lifetime
// that is over already ends like every other.
func (s *Server) start(ctx context.Context, req *pb.StartRequest, username string, lifetime time.Duration) (*process, *subscriber, error) {
	l, err := s.launch(req.GetProcess(), username, req.GetPty() != nil)
	if err != nil {
		return nil, nil, err
	}
	p := &process{config: req.GetProcess(), tag: req.Tag, table: &s.procs, done: make(chan struct{}), info: describe(req, l)}
	var theirs []int // the program's ends, closed here once it runs
	if size := req.GetPty(); size != nil {
		theirs, err = p.openPTY(l, size.GetSize())
	} else {
		theirs, err = p.openPipes(l, req.Stdin == nil || req.GetStdin())
	}
	if err == nil {
		p.parts.Store(int32(len(p.outs)) + 1)
		err = s.reaper.start(context.WithoutCancel(ctx), func() (int, error) {
			pid, err := syscall.ForkExec(l.path, l.argv, &l.attr)
			if err != nil {
				return 0, err
			}
			p.pid, p.info.PID, p.info.StartedAt = pid, pid, time.Now().UTC()
			p.serial = s.serial.Add(1)
			s.procs.add(p)
			return pid, nil
		}, p.exited)
	}
	closeAll(theirs)
	if err != nil {
		p.closeFiles()
		return nil, nil, execError(l.argv[0], err)
	}
	sub := p.subscribe(false)
	p.mu.Lock()
	if lifetime > 0 && !p.over() {
		p.timer = time.AfterFunc(lifetime, p.expire)
	}
	p.mu.Unlock()
	for i, f := range p.outs {
		from := streamPTY
		if p.pty == nil {
			from = stream(i)
		}
		go p.pump(f, from, &s.ring)
	}
	return p, sub, nil
}

// launch resolves user, directory, environment and program.
func (s *Server) launch(c *pb.ProcessConfig, username string, terminal bool) (*launch, error) {
	if c.GetCmd() == "" {
		return nil, invalid("the command is empty")
	}
	u, err := s.lookup(username)
	if err != nil {
		return nil, err
	}
	dir, err := s.workdir(c, u)
	if err != nil {
		return nil, err
	}
	env, path, err := s.environ(u, c.GetEnvs())
	if err != nil {
		return nil, err
	}
	if terminal {
		env = forTerminal(env)
	}
	l := &launch{user: u.name, argv: append([]string{c.GetCmd()}, c.GetArgs()...)}
	if l.path, err = findProgram(c.GetCmd(), path, dir); err != nil {
		return nil, err
	}
	l.attr = syscall.ProcAttr{
		Dir: dir,
		Env: env,
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}},
	}
	return l, nil
}

// workdir is where the program starts. Only a directory that the client named
// must exist.
func (s *Server) workdir(c *pb.ProcessConfig, u user) (string, error) {
	dir, err := resolvePath(c.GetCwd(), u.home, s.defaultWorkdir())
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(dir)
	switch {
	case err == nil && fi.IsDir():
		return dir, nil
	case c.GetCwd() == "":
		return "/", nil
	case err == nil:
		return "", &fault{code: connect.CodeInvalidArgument, reason: "ENOTDIR", text: fmt.Sprintf("cwd '%s' is not a directory", dir)}
	}
	return "", &fault{code: connect.CodeInvalidArgument, reason: "NOCWD", text: fmt.Sprintf("cwd '%s' does not exist", dir)}
}

// forTerminal adds what a program in a terminal needs to know and nobody said.
func forTerminal(env []string) []string {
	for _, v := range []string{"TERM=xterm-256color", "LANG=C.UTF-8"} {
		name := v[:strings.IndexByte(v, '=')+1]
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name) }) {
			env = append(env, v)
		}
	}
	return env
}

// environ is the program's environment, later ones winning: the daemon's PATH,
// who the user is, what the sandbox was given, what the client gave. It also
// gives the PATH in force.
func (s *Server) environ(u user, extra map[string]string) ([]string, string, error) {
	all := map[string]string{"PATH": defaultPath, "HOME": u.home, "USER": u.name, "LOGNAME": u.name}
	for k, v := range s.globalEnv() {
		all[k] = v
	}
	for k, v := range extra {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return nil, "", invalid("an environment variable has an impossible name or value: " + printable(k, 64))
		}
		all[k] = v
	}
	env := make([]string, 0, len(all))
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env, all["PATH"], nil
}

// findProgram looks a name without a slash up in path.
func findProgram(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	denied := false
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		full := filepath.Join(d, name)
		fi, err := os.Stat(full)
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if fi.Mode().Perm()&0o111 != 0 {
			return full, nil
		}
		denied = true
	}
	if denied {
		return "", execError(name, syscall.EACCES)
	}
	return "", execError(name, syscall.ENOENT)
}

// execError says, like a shell, why a program did not start.
func execError(name string, err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err
	}
	f := &fault{code: connect.CodeInvalidArgument, reason: unix.ErrnoName(no)}
	name = fmt.Sprintf("exec: %q: ", printable(name, 200))
	switch no {
	case syscall.ENOENT:
		f.text = name + "executable file not found in $PATH"
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE:
		f.code, f.text = connect.CodeResourceExhausted, name+no.Error()
	default:
		f.text = name + no.Error()
	}
	return f
}

// openPipes makes standard input, output and error.
func (p *process) openPipes(l *launch, stdin bool) (theirs []int, err error) {
	var r, w int
	if stdin {
		if r, w, err = pipe(); err != nil {
			return nil, err
		}
		theirs = append(theirs, r)
		p.stdin = newInput(ours(w))
	} else {
		if r, err = nothing(); err != nil {
			return nil, err
		}
		p.stdin = newInput(nil)
	}
	l.attr.Files = append(l.attr.Files, uintptr(r))
	for range 2 {
		if r, w, err = pipe(); err != nil {
			return theirs, err
		}
		theirs = append(theirs, w)
		l.attr.Files = append(l.attr.Files, uintptr(w))
		p.outs = append(p.outs, ours(r))
	}
	return theirs, nil
}

// nothing is the standard input of programs that have none: one descriptor, open
// for as long as the daemon runs.
var nothing = sync.OnceValues(func() (int, error) {
	return syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
})

func pipe() (r, w int, err error) {
	var fds [2]int
	err = syscall.Pipe2(fds[:], syscall.O_CLOEXEC)
	return fds[0], fds[1], err
}

// ours makes a file of the runtime's poller from a descriptor, so that waiting
// holds no thread. The program's end stays blocking.
func ours(fd int) *os.File {
	_ = syscall.SetNonblock(fd, true) // a fresh descriptor
	return os.NewFile(uintptr(fd), "|")
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

// closeFiles gives up a process that did not start.
func (p *process) closeFiles() {
	for _, f := range p.outs {
		f.Close()
	}
	if p.stdin != nil {
		p.stdin.close()
	}
}
