package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

func openExec(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	if err := echo(ctx, sb); err != nil {
		return nil, err
	}
	if !pause(ctx, 3*time.Second) { // warm: its clock is calibrated, its start is behind it
		return nil, ctx.Err()
	}
	s := &session{rounds: t.options.Count, warm: 5}
	rows := []*row{s.row("true", "ms").aim(8, 0), s.row("sh -c true", "ms"), s.row("python3 -c pass", "ms")}
	commands := [][]byte{client.Argv("/bin/true"), client.Line("true"), client.Argv("python3", "-c", "pass")}
	s.round = func(ctx context.Context) error {
		for i, r := range rows {
			from := time.Now()
			res, err := sb.ExecWith(ctx, api.Exec{Cmd: commands[i]})
			switch {
			case err != nil:
				r.fail(err)
			case res.ExitCode != 0:
				r.fail(fmt.Errorf("%s: exit %d, %q", r.what, res.ExitCode, res.Stderr))
			default:
				r.took(time.Since(from))
			}
		}
		return nil
	}
	return s, nil
}

func openFiles(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 16<<20)
	rand.Read(data)
	s := &session{rounds: t.some(10)}
	up, down := s.row("write", "MB/s"), s.row("read", "MB/s")
	s.round = func(ctx context.Context) error {
		from := time.Now()
		if err := sb.WriteFile(ctx, "/home/user/bench.bin", data); err != nil {
			up.fail(err)
			return nil
		}
		up.add(float64(len(data)) / 1e6 / time.Since(from).Seconds())
		from = time.Now()
		n, err := readAll(ctx, sb, "/home/user/bench.bin")
		if err == nil && n != int64(len(data)) {
			err = fmt.Errorf("read %d of %d bytes", n, len(data))
		}
		if err != nil {
			down.fail(err)
			return nil
		}
		down.add(float64(n) / 1e6 / time.Since(from).Seconds())
		return nil
	}
	return s, nil
}

// readAll reads a file of a sandbox and gives its length.
func readAll(ctx context.Context, sb *client.Sandbox, path string) (int64, error) {
	f, err := sb.Open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(io.Discard, f)
}
