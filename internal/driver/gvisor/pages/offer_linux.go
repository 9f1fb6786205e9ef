package pages

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
)

// Source is one file of a checkpoint, on this host (File) or not (At).
type Source struct {
	Name string
	Size int64
	File *os.File
	At   io.ReaderAt
}

// sinkName is what the part inside the sentry is registered as. gVisor hands a
// sink of its event log a configuration and a file, which is the one way into a
// running sentry that it leaves to others; no event is ever asked for.
const sinkName = "pandastack-pages"

// Offer prepares a sentry for reading these sources. It gives what to create in
// the sentry (sinks with their files, in order) and the socket that gVisor's
// restore then takes for its server of files. The files stay the caller's to
// close. The session lives until it is closed.
func Offer(sources []Source) (_ *Session, sinks []seccheck.SinkConfig, files []*os.File, client *os.File, err error) {
	s := &Session{}
	var ours []*os.File
	defer func() {
		if err != nil {
			s.Close()
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	add := func(f *os.File, config map[string]any) {
		sinks = append(sinks, seccheck.SinkConfig{Name: sinkName, Config: config})
		files = append(files, f)
	}
	for _, src := range sources {
		f, parallel := src.File, 1
		if f == nil {
			conn, far, err := pipe()
			if err != nil {
				return nil, nil, nil, nil, err
			}
			s.serve(src.Name, src.Size, src.At, conn)
			f, parallel = far, maxParallel
			ours = append(ours, far)
		}
		add(f, map[string]any{"name": src.Name, "size": strconv.FormatInt(src.Size, 10), "remote": src.File == nil, "parallel": strconv.Itoa(parallel)})
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	server, client := os.NewFile(uintptr(fds[0]), "pages-server"), os.NewFile(uintptr(fds[1]), "pages-client")
	ours = append(ours, server, client)
	add(server, map[string]any{})
	return s, sinks, files, client, nil
}

// pipe makes a connection for this process and the file of its other end.
func pipe() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "pages"), os.NewFile(uintptr(fds[1]), "pages-far")
	defer near.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	return conn, far, nil
}
