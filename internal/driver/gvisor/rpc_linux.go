package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswer bounds what a sentry's answer may take. Those we ask for are short.
const maxAnswer = 1 << 20

// call asks a sentry over its control socket: one JSON object each way, files
// beside the first. gVisor's own client is not used because it opens its
// descriptors without CLOEXEC, and a sentry that starts at that moment would
// inherit the connection to another one's control server.
func call(ctx context.Context, socket, method string, arg any, files []*os.File) error {
	conn, err := dialSocket(ctx, socket)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = exchange(conn, method, arg, files)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// dialSocket connects to a Unix socket whatever the length of its path, which
// the kernel limits for sockets and not for files.
func dialSocket(ctx context.Context, path string) (*net.UnixConn, error) {
	if len(path) >= len(unix.RawSockaddrUnix{}.Path) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		path = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func exchange(conn *net.UnixConn, method string, arg any, files []*os.File) error {
	request, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(request, rights, nil)
	if err == nil && n < len(request) {
		_, err = conn.Write(request[n:])
	}
	if err != nil {
		return err
	}
	var answer struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the sentry ended before it answered")
		}
		return err
	}
	if !answer.Success {
		return errors.New(answer.Err)
	}
	return nil
}
