package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// What an error carries of a program's output: the last lines, and before them
// the first ones that speak of trouble, as programs often go on for long after
// the cause.
const (
	tailLines  = 50
	earlyLines = 10
	tailWidth  = 500
)

var troublePattern = pattern(`(?i)^(E: |W: |dpkg: error|.*\berror[: ])`)

// passedEnv is what programs that build images see of this process's
// environment: the way to the network, no secrets.
var passedEnv = []string{
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
}

// command is a program of the host.
type command struct {
	name string
	args []string
	env  []string
	line func(string) // hears every line of output
}

// failure is how a command ended, with the end of what it said.
type failure struct {
	name string
	err  error
	log  []string
}

func (f *failure) Error() string {
	last := ""
	if n := len(f.log); n > 0 {
		last = ": " + f.log[n-1]
	}
	return fmt.Sprintf("%s: %v%s", f.name, f.err, last)
}

func (f *failure) Unwrap() error { return f.err }

// run runs a command to its end. When ctx ends the command is killed; it is
// killed as well when this process dies, which the kernel ties to the thread
// that started it, so that thread is kept.
func (c command) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Env = append(keepEnv(cmd.Environ()), c.env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	tail := make(chan []string, 1)
	go func() { tail <- readLines(out, c.line) }()
	err := cmd.Run()
	in.Close()
	log := <-tail
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &failure{name: c.name, err: err, log: log}
	}
	return nil
}

func keepEnv(env []string) []string {
	out := []string{"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	for _, kv := range env {
		// The system's own programs come first: mmdebstrap is made for them.
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			out = append(out, "PATH=/usr/sbin:/usr/bin:/sbin:/bin:"+path)
		}
		for _, name := range passedEnv {
			if strings.HasPrefix(kv, name+"=") {
				out = append(out, kv)
			}
		}
	}
	return out
}

// readLines passes lines on and keeps the last ones. Both ends of a line count,
// \n and the \r of progress bars; a line without end is cut.
func readLines(r io.Reader, line func(string)) []string {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 4096), 1<<16)
	sc.Split(splitLines)
	var tail, early []string
	for sc.Scan() {
		text := strings.ToValidUTF8(strings.TrimRight(sc.Text(), " \t"), "?")
		if text == "" {
			continue
		}
		if line != nil {
			line(text)
		}
		if len(text) > tailWidth {
			text = text[:tailWidth] + "..."
		}
		if tail = append(tail, text); len(tail) > tailLines {
			if len(early) < earlyLines && troublePattern().MatchString(tail[0]) {
				early = append(early, tail[0])
			}
			tail = tail[1:]
		}
	}
	io.Copy(io.Discard, r)
	return append(early, tail...)
}

func splitLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		return i + 1, data[:i], nil
	}
	if len(data) >= 1<<15 || (atEOF && len(data) > 0) {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// tailOf gives what a failed command said last.
func tailOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return strings.Join(f.log, "\n")
	}
	return ""
}
