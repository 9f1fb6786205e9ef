package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/host/hosttest"
)

func TestHostSuiteDirect(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	w := start(t, s)
	hosttest.Run(t, func(*testing.T) host.Host { return w.Agent })
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}

func TestHostSuiteOverTheWire(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	s.Shells = 1
	w := start(t, s)
	server := httptest.NewUnstartedServer(host.NewHandler(w.Agent, slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancel(context.Background())
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	client := host.NewClient(server.Listener.Addr().String(), nil)
	hosttest.Run(t, func(*testing.T) host.Host { return client })
	if err := client.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	cancel()
	server.Close()
	w.deleteAll()
	w.stop()
	wantNothingLeft(t, s)
}
