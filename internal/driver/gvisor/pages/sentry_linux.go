package pages

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/sync"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// Register makes this process able to read its checkpoint through Offer. A sentry
// calls it before anything of gVisor runs.
func Register() {
	s := &server{sources: map[string]source{}}
	seccheck.RegisterSink(seccheck.SinkDesc{Name: sinkName, New: s.add})
}

// server is inside a sentry. It has one life: gVisor opens each file once.
type server struct {
	mu      sync.Mutex
	sources map[string]source
	rpc     *urpc.Server
	open    int
}

// source is a file as the sentry sees it.
type source struct {
	size     int64
	at       io.ReaderAt
	parallel int
}

// sink is what gVisor gets for an event log.
type sink struct{ seccheck.SinkDefaults }

// Name implements seccheck.Sink.
func (sink) Name() string { return sinkName }

// Stop implements seccheck.Sink.
func (sink) Stop() {}

// add takes one file, or the socket to serve them on, which comes last.
func (s *server) add(config map[string]any, endpoint *fd.FD) (seccheck.Sink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if endpoint == nil {
		return nil, errors.New("pages: a file is missing")
	}
	name, ok := config["name"].(string)
	if !ok {
		return sink{}, s.serveLocked(endpoint.Release())
	}
	size, err := number(config, "size")
	if err != nil {
		return nil, err
	}
	parallel, err := number(config, "parallel")
	if err != nil {
		return nil, err
	}
	src := source{size: size, at: endpoint, parallel: int(parallel)}
	if remote, _ := config["remote"].(bool); remote {
		src.at = newRemote(endpoint)
	}
	s.sources[name] = src
	return sink{}, nil
}

func number(config map[string]any, key string) (int64, error) {
	text, _ := config[key].(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("pages: %s is %q", key, text)
	}
	return n, nil
}

// serveLocked answers gVisor's own client on a socket.
func (s *server) serveLocked(socket int) error {
	files, err := stateipc.NewAsyncFileServer(s)
	if err != nil {
		unix.Close(socket)
		return err
	}
	conn, err := unet.NewSocket(socket)
	if err != nil {
		unix.Close(socket)
		return err
	}
	s.rpc = urpc.NewServer()
	s.rpc.Register(files)
	s.rpc.StartHandling(conn)
	return nil
}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s *server) OpenRead(name string) (stateio.AsyncReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src, ok := s.sources[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	delete(s.sources, name)
	s.open++
	return newReader(src, s.closed), nil
}

// closed is told when a file needs to be read no more; after the last one the
// server ends.
func (s *server) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 && len(s.sources) == 0 {
		go s.rpc.Stop(0) // waits for who has called closed
	}
}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s *server) OpenWrite(string) (stateio.AsyncWriter, error) { return nil, fs.ErrPermission }

// Destroy implements stateipc.AsyncFileServerImpl.
func (s *server) Destroy() {}
