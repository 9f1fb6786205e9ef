package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	startLimit = 30 * time.Second       // a server that takes longer has failed
	stopLimit  = 60 * time.Second       // after that long over SIGTERM it is killed
	pollEvery  = 500 * time.Microsecond // far below what is measured
)

// ServerStart measures, in milliseconds and n times after two starts that do
// not count, the time from starting `binary server` with an empty data directory
// until its /healthz answers 200. It adds --data-dir and --listen to args. Each
// server is stopped by SIGTERM, which is not part of the time, and its data
// directory is removed. A start before the counting that fails ends the
// measuring; the error is in the Result.
func ServerStart(ctx context.Context, n int, binary string, args ...string) Result {
	var took samples
	for i := range n + warmUps {
		d, err := startOnce(ctx, binary, args)
		if ctx.Err() != nil {
			took.fail(ctx.Err())
			break
		}
		if err != nil {
			took.fail(err)
			if i < warmUps {
				break
			}
			continue
		}
		if i >= warmUps {
			took.add(milliseconds(d))
		}
	}
	return took.result("server", "start with an empty data directory, to /healthz", "ms")
}

// startOnce starts a server, waits for its health and stops it.
func startOnce(ctx context.Context, binary string, args []string) (took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "pandastack-bench-")
	if err != nil {
		return 0, fmt.Errorf("bench: make a data directory: %w", err)
	}
	defer os.RemoveAll(dir)
	address, err := freeAddress()
	if err != nil {
		return 0, fmt.Errorf("bench: find a free port: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, slices.Concat([]string{"server", "--data-dir", filepath.Join(dir, "data"), "--listen", address}, args)...)
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	from := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("bench: start a server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	took, err = untilHealthy(ctx, "http://"+address+"/healthz", from, ended)
	if !errors.Is(err, errEnded) {
		err = errors.Join(err, stop(cmd, ended))
	}
	if err != nil {
		return 0, fmt.Errorf("bench: server: %w: %s", err, output.data)
	}
	return took, nil
}

// interrupted is the exit code of a server that was still making its parts when
// it got the signal.
const interrupted = 130

var errEnded = errors.New("ended before it was healthy")

// untilHealthy asks url until it answers 200 and gives the time since from.
func untilHealthy(ctx context.Context, url string, from time.Time, ended <-chan error) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, from.Add(startLimit))
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if healthy(ctx, transport, url) {
			return time.Since(from), nil
		}
		select {
		case err := <-ended:
			return 0, fmt.Errorf("%w (%v)", errEnded, err)
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: %w", url, ctx.Err())
		case <-poll.C:
		}
	}
}

func healthy(ctx context.Context, transport http.RoundTripper, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends a server by SIGTERM, and by SIGKILL when that takes too long.
func stop(cmd *exec.Cmd, ended <-chan error) error {
	cmd.Process.Signal(syscall.SIGTERM) // it fails only when the server ended, which is seen below
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil && cmd.ProcessState.ExitCode() != interrupted {
			return fmt.Errorf("after SIGTERM: %w", err)
		}
		return nil
	case <-late.C:
		cmd.Process.Kill()
		<-ended
		return fmt.Errorf("it did not end within %s of SIGTERM", stopLimit)
	}
}

// freeAddress is one on which nothing listens now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// tail keeps the last of what is written to it.
type tail struct{ data []byte }

const tailLimit = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if over := len(t.data) - tailLimit; over > 0 {
		t.data = bytes.Clone(t.data[over:])
	}
	return len(p), nil
}
