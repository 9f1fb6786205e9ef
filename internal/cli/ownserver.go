package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
	"github.com/pandastack/pandastack/internal/server"
)

// adminKeyFile is where a server leaves the first key.
func adminKeyFile(dataDir string) string { return filepath.Join(dataDir, "admin.key") }

// ownServer is a server that this process runs for itself.
type ownServer struct {
	dataDir string
	addr    string
	ctx     context.Context // ends when the server has
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // set before done is closed
}

// startAny starts a server on the first of some data directories that no other
// server uses.
func startAny(ctx context.Context, c server.Config, dirs []string) (*ownServer, error) {
	var err error
	for _, dir := range dirs {
		c.DataDir = dir
		var s *ownServer
		if s, err = startOwn(ctx, c); err == nil || api.CodeOf(err) != api.CodeDataDirLocked {
			return s, err
		}
	}
	return nil, err
}

// startOwn starts a server and returns when it listens. It runs until stop is
// called: an interrupt must not take it from under the command that is to end
// first.
func startOwn(ctx context.Context, c server.Config) (*ownServer, error) {
	s := &ownServer{dataDir: c.DataDir, done: make(chan struct{})}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	s.ctx = ended
	listening := make(chan string, 1)
	go func() {
		defer close(s.done)
		defer end()
		s.err = serve(run, c, func(addr string) { listening <- addr })
	}()
	select {
	case s.addr = <-listening:
		return s, nil
	case <-s.done:
		cancel()
		if s.err == nil {
			s.err = api.Errorf(api.CodeInternal, "the server ended before it answered")
		}
		return nil, s.err
	case <-ctx.Done():
		_ = s.stop() // the interrupt is what ended it
		return nil, ctx.Err()
	}
}

// stop ends the server and waits for it.
func (s *ownServer) stop() error {
	s.cancel()
	<-s.done
	return s.err
}

// client makes a client with the admin key of the server.
func (s *ownServer) client(ctx context.Context) (*client.Client, error) {
	// The first answer comes when the server is made, and the key with it.
	nobody, err := client.New(client.Options{BaseURL: "http://" + s.addr})
	if err != nil {
		return nil, err
	}
	defer nobody.Close()
	if _, err := nobody.Version(ctx); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(adminKeyFile(s.dataDir))
	if err != nil {
		return nil, api.Wrap(api.CodeInternal, err, "the key of the server cannot be read: %s", err).WithHint("")
	}
	return client.New(client.Options{BaseURL: nobody.BaseURL(), APIKey: strings.TrimSpace(string(key))})
}
