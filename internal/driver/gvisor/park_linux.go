package gvisor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/gvisor/hold"
)

// Park implements driver.Machine.
func (m *machine) Park(ctx context.Context, dir string) (unpark func(), err error) {
	if err := m.Loaded(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return nil, err
	}
	var end *os.File
	err = m.whileAwake(ctx, func() error {
		if end, err = m.s.pause(ctx); err != nil {
			return err
		}
		return m.snapshot(ctx, dir)
	})
	if err != nil {
		if end != nil {
			end.Close()
		}
		return nil, err
	}
	return sync.OnceFunc(func() { end.Close() }), nil
}

// pause stops every task of the guest until the returned file is closed, or this
// process ends.
func (s *sentry) pause(ctx context.Context) (*os.File, error) {
	end, sinks, files, err := hold.Pause()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	if err := s.equip(ctx, sinks, files); err != nil {
		end.Close()
		return nil, pauseError(ctx, err)
	}
	return end, nil
}

func pauseError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if strings.Contains(err.Error(), hold.ErrNoPart.Error()) {
		return api.Errorf(api.CodeUnsupported, "the sandbox cannot be paused: its guest program is of an older build")
	}
	return fmt.Errorf("pause the guest: %w", err)
}
