//go:build linux

package guestd

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/internal/guest"
	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
	"github.com/pandastack/pandastack/internal/guest/kernels"
)

// codeFile says that a machine serves code contexts on guest.CodePort, and which
// it starts ahead: a language a line, and after it what its kernel loads first.
const codeFile = "/etc/pandastack/code-contexts"

// maxCodeFile bounds what is read of it.
const maxCodeFile = 64 << 10

// codeAhead is the content of codeFile.
type codeAhead struct {
	there     bool
	languages []string
	preload   map[string][]string
}

func readCodeAhead(root string) codeAhead {
	a := codeAhead{preload: map[string][]string{}}
	path := filepath.Join(root, codeFile)
	if _, err := os.Stat(path); err != nil {
		return a
	}
	a.there = true
	for line := range strings.Lines(readBounded(path, maxCodeFile)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		a.languages = append(a.languages, f[0])
		a.preload[f[0]] = f[1:]
	}
	return a
}

// codeSystem runs kernels for package kernels.
type codeSystem struct{ s *Server }

func (c codeSystem) Has(program string) bool {
	_, path, err := c.s.environ(user{home: "/"}, nil)
	if err != nil {
		return false
	}
	_, err = findProgram(program, path, "/")
	return err == nil
}

// Home is where contexts start: the user's home directory where there is one.
func (c codeSystem) Home() string {
	u, err := c.s.lookup("")
	if err != nil {
		return "/"
	}
	dir, err := c.s.workdir(&pb.ProcessConfig{}, u)
	if err != nil {
		return "/"
	}
	return dir
}

func (c codeSystem) Environ() map[string]string { return c.s.globalEnv() }

// Start runs a kernel: standard input is empty, 1 and 2 are its output, 3 its
// commands and 4 its events.
func (c codeSystem) Start(ctx context.Context, prog kernels.Program) (*kernels.Process, error) {
	l, err := c.s.launch(&pb.ProcessConfig{Cmd: prog.Path, Args: prog.Args, Envs: prog.Env, Cwd: &prog.Dir}, "", false)
	if err != nil {
		return nil, err
	}
	var theirs []int
	defer func() { closeAll(theirs) }()
	null, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, null)
	var files []*os.File // of 1 to 4
	for i := range 4 {
		r, w, err := pipe()
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		mine, its := r, w
		if i == 2 {
			mine, its = w, r
		}
		files, theirs = append(files, ours(mine)), append(theirs, its)
	}
	for _, fd := range theirs {
		l.attr.Files = append(l.attr.Files, uintptr(fd))
	}
	k := &kernelProcess{done: make(chan struct{})}
	err = c.s.reaper.start(context.WithoutCancel(ctx), func() (int, error) {
		pid, err := syscall.ForkExec(l.path, l.argv, &l.attr)
		k.pid, k.serial = pid, c.s.serial.Add(1)
		return pid, err
	}, k.exited)
	if err != nil {
		closeFiles(files)
		return nil, execError(prog.Path, err)
	}
	return &kernels.Process{
		PID: k.pid, Stdout: files[0], Stderr: files[1], Commands: files[2], Events: files[3], Done: k.done,
		Status:    func() string { <-k.done; return statusText(k.status) },
		Signal:    func(sig syscall.Signal) { k.signal(k.pid, sig) },
		Interrupt: func() { k.signal(-k.pid, syscall.SIGINT) },
		Kill:      k.kill,
		Log:       k.log(c.s),
	}, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// kernelProcess is a kernel as the reaper knows it.
type kernelProcess struct {
	pid    int
	serial uint64
	status syscall.WaitStatus // once done is closed
	done   chan struct{}
}

func (k *kernelProcess) exited(ws syscall.WaitStatus) {
	k.status = ws
	close(k.done)
}

// signal signals the kernel or, with its negative number, its group. One that
// has ended is left alone: the number may be another's.
func (k *kernelProcess) signal(pid int, sig syscall.Signal) {
	select {
	case <-k.done:
	default:
		_ = syscall.Kill(pid, sig) // it may have ended this moment
	}
}

// kill ends the kernel with what it started.
func (k *kernelProcess) kill() {
	select {
	case <-k.done:
	default:
		killTree(k.pid)
	}
}

// log puts output of the kernel into the machine's log.
func (k *kernelProcess) log(s *Server) func(bool, []byte) {
	return func(stderr bool, data []byte) {
		from := streamStdout
		if stderr {
			from = streamStderr
		}
		s.ring.add(origin{serial: k.serial, pid: k.pid, out: from}, data, false)
	}
}

// serveCode serves contexts on the port that clients of the code interpreter
// know, and starts those that the image asks for, if it does.
func (s *Server) serveCode(ctx context.Context) {
	if !s.ahead.there || !s.opt.First {
		close(s.warm)
		return
	}
	s.tasks.Go(func() {
		defer close(s.warm)
		if err := s.code.Warm(ctx, s.ahead.languages); err != nil {
			s.opt.Log.Warn("a code context was not started ahead", "err", err)
		}
	})
	l, err := net.Listen("tcp", ":"+itoa(guest.CodePort))
	if err != nil {
		s.opt.Log.Error("code contexts have no port", "err", err)
		return
	}
	server := &http.Server{
		Handler: s.code.Handler(), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
	}
	s.conns.track(server)
	s.tasks.Go(func() { _ = server.Serve(l) }) // it ends when it is closed
	s.tasks.Go(func() { <-ctx.Done(); server.Close() })
}

// warmCode answers when the contexts that the image asks for can run code.
func (s *Server) warmCode(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.warm:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}
