package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// openTerminal measures how long a key takes to appear.
func openTerminal(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	term, err := sb.Terminal(context.WithoutCancel(ctx), client.TerminalOptions{Line: "cat"})
	if err != nil {
		return nil, err
	}
	s := &session{rounds: t.options.Count, warm: 20}
	key := s.row("echo of a key", "ms").aim(2, 0)
	buf := make([]byte, 64)
	s.round = func(ctx context.Context) error {
		from := time.Now()
		if _, err := term.Write([]byte("k")); err != nil {
			return err
		}
		if _, err := term.Read(buf); err != nil {
			return err
		}
		key.took(time.Since(from))
		return nil
	}
	s.end = func(context.Context) error { return term.Close() }
	return s, nil
}

// openStreams measures what streams that say nothing cost the server.
func openStreams(ctx context.Context, t *target) (*session, error) {
	const streams = 50
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	s := &session{rounds: 1}
	grown := s.row(fmt.Sprintf("memory of the server for %d open streams", streams), "MB").aim(50, 0)
	s.round = func(ctx context.Context) error {
		before, err := t.serverMemory(ctx)
		if err != nil {
			return err
		}
		var open []*client.Cmd
		defer func() {
			for _, c := range open {
				c.Wait() // killed below; how it ended does not matter
			}
		}()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for range streams {
			cmd := sb.ShellCommand(ctx, "echo up; exec sleep 600")
			out, err := cmd.StdoutPipe()
			if err != nil {
				return err
			}
			if err := cmd.Start(); err != nil {
				return err
			}
			open = append(open, cmd)
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				return fmt.Errorf("a stream began with %q: %w", line, err)
			}
		}
		after, err := t.serverMemory(ctx)
		if err == nil {
			grown.add(max(0, after-before) / 1e6)
		}
		return err
	}
	return s, nil
}

// serverMemory is the resident memory of the server in bytes, as it says itself.
func (t *target) serverMemory(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.BaseURL()+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 4<<20)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, errors.New("the server does not say how much memory it has")
}
