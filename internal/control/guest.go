package control

import (
	"context"
	"net"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// Guest gives the client of the daemon in a running sandbox; a hibernated one is
// woken for it. It is shared: the service closes it when the sandbox stops
// running.
func (s *Service) Guest(ctx context.Context, who auth.Identity, id string) (*guest.Client, error) {
	rec, err := s.find(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if rec.status != api.StatusRunning {
		if rec, err = s.awake(ctx, who, id); err != nil {
			return nil, err
		}
	}
	return rec.client, nil
}

// Dial connects to a TCP port in a running sandbox; a hibernated one is woken
// for it. The daemon's own port is
// refused: it obeys whoever reaches it with a token, and that is the API.
func (s *Service) Dial(ctx context.Context, who auth.Identity, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, invalid("port", "port must be between 1 and 65535")
	}
	if port == api.InternalPort {
		return nil, api.Errorf(api.CodeForbidden, "port %d of a sandbox is reserved", port).
			WithHint("Let the service in the sandbox listen on another port.")
	}
	rec, err := s.find(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if rec.status != api.StatusRunning {
		if _, err = s.awake(ctx, who, id); err != nil {
			return nil, err
		}
	}
	return s.host.Dial(ctx, id, port)
}

// Metrics is what a running or paused sandbox uses now. A hibernated one uses
// nothing and is not woken to say so.
func (s *Service) Metrics(ctx context.Context, who auth.Identity, id string) (api.Metrics, error) {
	rec, err := s.find(ctx, who, id)
	if err != nil {
		return api.Metrics{}, err
	}
	if rec.status != api.StatusRunning && rec.status != api.StatusPaused {
		return api.Metrics{}, inState(id, rec, "running or paused")
	}
	return s.host.Usage(ctx, id)
}
