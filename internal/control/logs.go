package control

import (
	"context"

	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/guest"
)

// Logs gives what the processes of a running sandbox wrote. The caller closes
// the stream.
func (s *Service) Logs(ctx context.Context, who auth.Identity, id string, o guest.LogOptions) (*guest.LogStream, error) {
	client, err := s.Guest(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return client.Logs(ctx, o)
}
