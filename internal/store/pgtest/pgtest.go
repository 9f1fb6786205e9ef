// Package pgtest runs a real PostgreSQL for tests, from Debian's binaries, on a
// socket in a temporary directory. Only tests import it.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrAbsent says that no PostgreSQL server is installed.
var ErrAbsent = errors.New("no PostgreSQL server under /usr/lib/postgresql; apt-get install postgresql")

// startTimeout bounds how long initdb and the server's start may each take.
const startTimeout = 60 * time.Second

// Server is a running PostgreSQL.
type Server struct {
	dir  string
	proc *os.Process
	done chan struct{} // closed when the server has ended
	next atomic.Int64
}

var shared struct {
	sync.Mutex
	required bool
	server   *Server
	err      error
	started  bool
}

// Run runs the tests of a package and stops the server that DSN started. When
// required is set, a missing PostgreSQL fails the tests that need it instead of
// skipping them. Call it as os.Exit(pgtest.Run(m, ...)) in TestMain.
func Run(m *testing.M, required bool) int {
	shared.required = required
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
	}
	return code
}

// DSN gives the address of an empty database of the package's shared server,
// which is started by the first call.
func DSN(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.started {
		shared.server, shared.err = Start(t.Context())
		shared.started = true
	}
	need(t, shared.err)
	dsn, err := shared.server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// New starts a server of the test's own and stops it at the test's end.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Start(t.Context())
	need(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func need(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrAbsent) && !shared.required {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Start makes a database cluster in a temporary directory and serves it on a
// Unix socket there. It gives up its durability for speed.
func Start(ctx context.Context) (_ *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	attr, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	initdb := exec.CommandContext(initCtx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s := &Server{dir: dir, done: make(chan struct{})}
	if err := s.serve(bin, data, attr); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// serve starts the server process. The thread that forks it waits for it, so
// that the process dies with this one and not with a thread of it.
func (s *Server) serve(bin, data string, attr *syscall.SysProcAttr) error {
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200")
	cmd.SysProcAttr, cmd.Dir = dieWithParent(attr), s.dir
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		err := cmd.Start()
		s.proc = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in what the tests get
		}
		log.Close()
	}()
	return <-started
}

// ready waits until the server takes connections.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.DSN("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.done:
			out, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("postgres ended at its start: %s", out)
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// DSN is the address of a database of this server.
func (s *Server) DSN(database string) string {
	return "postgres://postgres@/" + database + "?" + url.Values{"host": {s.dir}}.Encode()
}

// Database makes an empty database and gives its address.
func (s *Server) Database(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return "", err
	}
	name := "test" + strconv.FormatInt(s.next.Add(1), 10)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name+" STRATEGY = wal_log")
	return s.DSN(name), errors.Join(err, conn.Close(ctx))
}

// Stop ends the server without waiting for its clients, and removes its files.
func (s *Server) Stop() error {
	var err error
	select {
	case <-s.done:
	default:
		err = s.proc.Signal(syscall.SIGQUIT)
		<-s.done
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// binaries finds the newest PostgreSQL of Debian.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return "", errors.Join(ErrAbsent, err)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// unprivileged gives the attributes of a process that is not root, because
// PostgreSQL refuses root, and hands it dir.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, errors.Join(ErrAbsent, err)
	}
	uid, err1 := strconv.ParseUint(who.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(err1, err2, os.Chown(dir, int(uid), int(gid))); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
