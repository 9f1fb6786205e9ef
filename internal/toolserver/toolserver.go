// Package toolserver runs servers of other projects for tests and benchmarks, in
// the versions that tools/go.mod names. Only tests import it.
package toolserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience bounds how long the start of a server may take.
const patience = time.Minute

// Build gives the path of a tool's binary. It is in Go's build cache, so that
// only the first call takes long: a minute or more.
func Build(tb testing.TB, tool string) string {
	tb.Helper()
	root, err := root()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), "go", "tool", "-modfile=tools/go.mod", "-n", tool)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("building %s: %v: %s", tool, err, problems.String())
	}
	return strings.TrimSpace(string(out))
}

// root finds the repository above the directory of the test.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "tools", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("test servers are built from tools/go.mod, which is not above this test's directory")
		}
		dir = filepath.Dir(dir)
	}
}

// Anywhere calls start with addresses of the loopback interface that are free
// until it succeeds: another process may take one between our asking for it and
// the server's.
func Anywhere(start func(addr string) error) error {
	var err error
	for range 5 {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		addr := l.Addr().String()
		l.Close()
		if err = start(addr); err == nil {
			return nil
		}
	}
	return err
}

// Spec is a server to start.
type Spec struct {
	Binary string
	Args   []string
	Env    []string
	Dir    string       // that it runs in, and keeps its output in a file "log"
	Ready  func() error // nil once it answers
}

// Process is a server that runs.
type Process struct {
	proc *os.Process
	done chan struct{} // closed when proc has ended
}

// Start starts a process and waits until it answers. The thread that forks it
// waits for it, so that it dies with this process and not with a thread of it.
func Start(s Spec) (*Process, error) {
	cmd := exec.Command(s.Binary, s.Args...)
	cmd.SysProcAttr, cmd.Dir, cmd.Env = dieWithParent(), s.Dir, append([]string{}, s.Env...)
	path := filepath.Join(s.Dir, "log")
	log, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(p.done)
		err := cmd.Start()
		p.proc = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in what the tests get
		}
		log.Close()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := p.ready(s.Ready); err != nil {
		p.Stop()
		text, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(s.Binary), err, text)
	}
	return p, nil
}

func (p *Process) ready(answers func() error) error {
	late := time.After(patience)
	for {
		err := answers()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("it ended at its start")
		case <-late:
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	_ = p.proc.Kill() // it may have ended by itself
	<-p.done
}
