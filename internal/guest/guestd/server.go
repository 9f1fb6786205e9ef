//go:build linux

package guestd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/pandastack/pandastack/internal/guest/envdpb"
	"github.com/pandastack/pandastack/internal/guest/kernels"
)

// Bounds of what one connection may make the daemon hold.
const (
	maxMessage = 16 << 20
	maxHeader  = 64 << 10
	idleTime   = 640 * time.Second
)

// Options says how the daemon runs.
type Options struct {
	// First says that this is the first process of a machine, whose end is the
	// end of the machine: a request to stop then kills every process.
	First bool
	// LocalInit admits /init from this machine. For tests.
	LocalInit bool
	// Root is put before the paths of the system's files that /init renews, and
	// keeps hostname and clock as they are. For tests; empty is the real ones.
	Root string
	// Hold lets the rest of the machine go on after a restore; see OpenHold. Nil
	// where the runtime holds nothing.
	Hold io.Writer
	// Environ is the environment that programs start from.
	Environ []string
	Log     *slog.Logger
}

// Server is the daemon. Make it with New.
type Server struct {
	opt      Options
	base     map[string]string
	users    userFiles
	procs    table
	reaper   reaper
	conns    conns
	serial   atomic.Uint64
	ring     ring
	watchers watchers
	cpu      cpuClock
	code     *kernels.Contexts
	ahead    codeAhead
	warm     chan struct{}   // closed when the contexts of ahead can run code
	stopping chan struct{}   // closed when the daemon ends
	lifetime context.Context // of Run, for what outlives a request
	tasks    sync.WaitGroup  // what outlives a request

	initMu   sync.Mutex
	renewed  string            // id that the names of this machine were made for; under initMu
	written  map[string]string // content of the system's files by path; under initMu
	mu       sync.Mutex
	settings settings
}

// New makes a daemon; Run starts it.
func New(opt Options) *Server {
	s := &Server{
		opt:      opt,
		base:     baseEnv(opt.Environ),
		users:    userFiles{passwd: "/etc/passwd", group: "/etc/group"},
		procs:    table{byPID: map[int]*process{}},
		reaper:   newReaper(),
		conns:    conns{local: opt.LocalInit, open: map[net.Conn]struct{}{}},
		renewed:  lastID(opt.Root),
		written:  map[string]string{},
		watchers: watchers{byID: map[string]*polled{}},
		stopping: make(chan struct{}),
		ahead:    readCodeAhead(opt.Root),
		warm:     make(chan struct{}),
	}
	s.code = kernels.New(codeSystem{s}, s.ahead.preload)
	return s
}

// Run serves on l until a signal asks the daemon to end, and then kills what it
// started. It owns the signals and the children of this process.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	s.tune()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.lifetime = ctx
	children, stop := make(chan os.Signal, 1), make(chan os.Signal, 4)
	signal.Notify(children, syscall.SIGCHLD)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if s.opt.First {
		// Caught and dropped rather than ignored: ignoring is inherited by
		// every program, and the default would end the machine.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	}
	s.tasks.Go(func() { s.reaper.run(ctx, children) })
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
	}
	s.conns.track(server)
	served := make(chan error, 1)
	s.tasks.Go(func() { served <- server.Serve(l) })
	s.serveCode(ctx)
	s.opt.Log.Info("listening", "addr", l.Addr().String(), "version", Version)
	if s.opt.First {
		silence()
	}
	var err error
	select {
	case err = <-served:
	case <-stop:
	case <-ctx.Done():
	}
	close(s.stopping)
	s.killAll()
	s.code.Close()
	cancel()
	server.Close()
	signal.Stop(children)
	s.tasks.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// tune keeps the daemon small. GOMAXPROCS is set so that the runtime does not
// look for changes of it, which would wake the daemon now and then.
func (s *Server) tune() {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4))
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(24 << 20)
	syscall.Umask(0o022)
	if s.opt.First {
		protect()
		tmpOnDisk()
		return
	}
	// Orphans of programs come here as they would to the first process.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it they go to that one
}

// killAll ends every program at once.
func (s *Server) killAll() {
	if s.opt.First {
		_ = syscall.Kill(-1, syscall.SIGKILL) // fails when there is none
		return
	}
	for _, p := range s.procs.running() {
		p.killTree()
	}
}

// Handler serves all routes of the daemon.
func (s *Server) Handler() http.Handler {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		// Compression costs a megabyte for each stream, and the way to the
		// host is memory.
		connect.WithCompression("gzip", nil, nil),
	}
	mux := http.NewServeMux()
	path, processHandler := pb.NewProcessHandler(processes{s}, opts...)
	mux.Handle(path, withLastFlush(processHandler))
	mux.Handle(pb.NewFilesystemHandler(files{s}, opts...))
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /envs", s.envs)
	mux.HandleFunc("GET /logs", s.logs)
	mux.HandleFunc("POST /init", s.init)
	mux.HandleFunc("GET /pandastack/code/warm", s.warmCode)
	mux.Handle("/pandastack/code/", http.StripPrefix("/pandastack/code", s.code.Handler()))
	mux.HandleFunc("GET /processes", s.listProcesses)
	mux.HandleFunc("POST /processes/stdin", s.feedProcess)
	mux.HandleFunc("GET /files", s.download)
	mux.HandleFunc("POST /files", s.upload)
	mux.HandleFunc("POST /files/compose", s.compose)
	s.native(mux)
	return s.authorize(mux)
}
