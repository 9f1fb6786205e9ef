package server

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/pandastack/pandastack/api"
)

// listen takes an address, or says why it cannot be had.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, api.Wrap(api.CodePortInUse, err, "another program listens on %s", addr)
	case errors.Is(err, syscall.EACCES):
		return nil, api.Wrap(api.CodeNotRoot, err, "listening on %s needs root", addr)
	}
	return nil, api.Wrap(api.CodeInvalidRequest, err, "cannot listen on %s: %s", addr, reason(err)).
		WithHint("Choose an address of this machine with --listen.")
}

// reason is the last part of a network error, without its addresses.
func reason(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
