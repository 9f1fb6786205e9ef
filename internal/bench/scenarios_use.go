package bench

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// openExec measures commands beside what they cost without the API: the same one
// started by a program inside, and by this program on this machine.
func openExec(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	inside, err := startSpawner(ctx, sb)
	if err != nil {
		return nil, err
	}
	if !pause(ctx, 3*time.Second) { // warm: its clock is calibrated, its start is behind it
		return nil, ctx.Err()
	}
	s := &session{rounds: t.options.Count, warm: 5}
	rows := []*row{s.row("true", "ms").aim(8, 0), s.row("sh -c true", "ms"), s.row("python3 -c pass", "ms")}
	own, native := s.row("true, started by a program inside", "ms"), s.row("true, on the machine that measures", "ms")
	beyond := s.row("true beyond one started inside", "ms").aim(3, 0)
	many := s.row("true, 8 at once", "1/s")
	commands := [][]byte{client.Argv("/bin/true"), client.Line("true"), client.Argv("python3", "-c", "pass")}
	s.round = func(ctx context.Context) error {
		for i, r := range rows {
			from := time.Now()
			if err := succeeds(ctx, sb, commands[i]); err != nil {
				r.fail(err)
				continue
			}
			r.took(time.Since(from))
		}
		if ms, err := inside.spawn(); err != nil {
			own.fail(err)
		} else {
			own.add(ms)
		}
		from := time.Now()
		if err := exec.CommandContext(ctx, "/bin/true").Run(); err != nil {
			native.fail(err)
		} else {
			native.took(time.Since(from))
		}
		return nil
	}
	s.end = func(ctx context.Context) error {
		inside.stop()
		if len(rows[0].values) > 0 && len(own.values) > 0 {
			beyond.add(median(rows[0].values) - median(own.values))
		}
		return crowd(ctx, sb, many)
	}
	return s, nil
}

// succeeds runs a command that must exit with 0.
func succeeds(ctx context.Context, sb *client.Sandbox, cmd []byte) error {
	res, err := sb.ExecWith(ctx, api.Exec{Cmd: cmd})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%s: exit %d, %q", cmd, res.ExitCode, res.Stderr)
	}
	return err
}

// crowd runs commands in one sandbox for three seconds, eight at a time.
func crowd(ctx context.Context, sb *client.Sandbox, many *row) error {
	var done atomic.Int64
	var wg sync.WaitGroup
	from := time.Now()
	for range 8 {
		wg.Go(func() {
			for time.Since(from) < 3*time.Second && ctx.Err() == nil {
				if err := succeeds(ctx, sb, client.Argv("/bin/true")); err != nil {
					many.fail(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	many.add(float64(done.Load()) / time.Since(from).Seconds())
	return ctx.Err()
}

// spawner is a program in a sandbox that starts another for each line that it is
// given.
type spawner struct {
	in  *io.PipeWriter
	out *bufio.Scanner
}

const spawnerProgram = `import os, sys, time
for line in sys.stdin:
    t = time.perf_counter()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    print((time.perf_counter() - t) * 1000, flush=True)
`

func startSpawner(ctx context.Context, sb *client.Sandbox) (*spawner, error) {
	const path = "/home/user/spawner.py"
	if err := sb.WriteFile(ctx, path, []byte(spawnerProgram)); err != nil {
		return nil, err
	}
	cmd := sb.ShellCommand(context.WithoutCancel(ctx), "exec python3 "+path)
	r, w := io.Pipe()
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &spawner{in: w, out: bufio.NewScanner(out)}, nil
}

// spawn gives the milliseconds from a start of true to its end.
func (s *spawner) spawn() (float64, error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return 0, err
	}
	if !s.out.Scan() {
		return 0, fmt.Errorf("the program inside has ended: %w", cmp.Or(s.out.Err(), io.EOF))
	}
	return strconv.ParseFloat(s.out.Text(), 64)
}

// stop ends the program; what is left of it ends with the sandbox.
func (s *spawner) stop() { s.in.Close() }

func median(values []float64) float64 { return percentile(slices.Sorted(slices.Values(values)), 50) }

// fileSize is that of the file that goes up and down.
const fileSize = 64 << 20

// openFiles measures transfers beside what the runtime does with its own files.
func openFiles(ctx context.Context, t *target) (*session, error) {
	sb, err := t.create(ctx, api.CreateSandbox{})
	if err != nil {
		return nil, err
	}
	data := make([]byte, fileSize)
	rand.Read(data)
	s := &session{rounds: t.some(10), warm: 1}
	up, down := s.row("write", "MB/s"), s.row("read", "MB/s")
	write, read := s.row("write by a program inside", "MB/s"), s.row("read by a program inside", "MB/s")
	s.round = func(ctx context.Context) error {
		from := time.Now()
		if err := sb.WriteFile(ctx, "/home/user/bench.bin", data); err != nil {
			up.fail(err)
			return nil
		}
		up.add(fileSize / 1e6 / time.Since(from).Seconds())
		from = time.Now()
		n, err := readAll(ctx, sb, "/home/user/bench.bin")
		if err == nil && n != fileSize {
			err = fmt.Errorf("read %d of %d bytes", n, fileSize)
		}
		if err != nil {
			down.fail(err)
			return nil
		}
		down.add(float64(n) / 1e6 / time.Since(from).Seconds())
		if w, r, err := filesInside(ctx, sb); err != nil {
			write.fail(err)
		} else {
			write.add(w)
			read.add(r)
		}
		return nil
	}
	return s, nil
}

// filesInside gives the MB/s at which a program in the sandbox writes a new file
// and reads it.
func filesInside(ctx context.Context, sb *client.Sandbox) (write, read float64, err error) {
	res, err := sb.ExecWith(ctx, api.Exec{Cmd: client.Argv("python3", "-c", fmt.Sprintf(`import os, time
size, piece = %d, os.urandom(1 << 20)
t = time.time()
with open("inside.bin", "wb", buffering=0) as f:
    for _ in range(size >> 20): f.write(piece)
w = time.time() - t
t = time.time()
with open("inside.bin", "rb", buffering=0) as f:
    while f.read(1 << 20): pass
print(size / 1e6 / w, size / 1e6 / (time.time() - t))
os.remove("inside.bin")`, fileSize))})
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscan(res.Stdout, &write, &read); err != nil {
		return 0, 0, fmt.Errorf("%q, %q: %w", res.Stdout, res.Stderr, err)
	}
	return write, read, nil
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
