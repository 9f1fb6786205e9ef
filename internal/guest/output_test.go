//go:build linux

package guest_test

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

func TestBinaryOutput(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	want := make([]byte, 0, 256*256)
	for i := range 256 * 256 {
		want = append(want, byte(i*7))
	}
	file := filepath.Join(t.TempDir(), "bytes")
	if err := os.WriteFile(file, want, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := d.sh(t, "cat "+file); r.stdout != string(want) {
		t.Fatalf("%d bytes came back changed", len(r.stdout))
	}
}

// A reader of a gigabyte costs the daemon no memory, and neither does one that
// stops reading.
func TestGigabyteInConstantMemory(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	p, err := d.Start(ctx, guest.Command{Cmd: "head", Args: []string{"-c", strconv.Itoa(1 << 30), "/dev/zero"}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	stalled, err := d.Start(ctx, guest.Command{Cmd: "yes", User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	n, most := 0, 0
	began := time.Now()
	for i := 0; ; i++ {
		ev, err := p.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n += len(ev.Stdout)
		if len(ev.Stdout) > 32<<10 {
			t.Fatalf("a piece of %d bytes", len(ev.Stdout))
		}
		if i%512 == 0 {
			most = max(most, d.rssKB(t))
		}
	}
	t.Logf("1 GiB in %v, daemon at most %d KB resident", time.Since(began).Round(time.Millisecond), most)
	if n != 1<<30 {
		t.Fatalf("%d bytes", n)
	}
	if most > 40<<10 {
		t.Fatalf("the daemon grew to %d KB", most)
	}
	if err := d.Signal(ctx, stalled.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// With nobody attached a program that prints is not held up.
func TestOutputWithoutSubscriberIsDrained(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	done := filepath.Join(t.TempDir(), "done")
	p, err := d.Start(ctx, guest.Command{Cmd: "/bin/sh", Args: []string{"-c", "head -c 20000000 /dev/zero; touch " + done}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	eventually(t, "it wrote all", func() bool { _, err := os.Stat(done); return err == nil })
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	p, err := d.Start(ctx, guest.Command{
		Cmd: "/bin/sh", Args: []string{"-c", "stty size; read x; stty size; tty; exit 4"}, User: "root",
		PTY: &guest.Size{Cols: 91, Rows: 17},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wantCode(t, d.SendInput(ctx, p.PID(), []byte("x")), api.CodeProcessInvalid)
	wantCode(t, d.CloseStdin(ctx, p.PID()), api.CodeProcessInvalid)
	if err := d.Resize(ctx, p.PID(), guest.Size{Cols: 120, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	if err := d.SendPTY(ctx, p.PID(), []byte("go\n")); err != nil {
		t.Fatal(err)
	}
	r := drain(p)
	if r.exit == nil || r.exit.Code != 4 || !strings.Contains(r.pty, "40 120") || !strings.Contains(r.pty, "/dev/pts/") {
		t.Fatalf("%q %+v %v", r.pty, r.exit, r.err)
	}
}
