//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

func testStore(t testing.TB, opts ...Option) *Store {
	t.Helper()
	return NewStore(t.TempDir(), slog.New(slog.DiscardHandler), opts...)
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: building images needs root")
	}
	if len(lacking([]Missing{needErofs})) > 0 {
		t.Skip("NOT TESTED: mkfs.erofs is not installed (package erofs-utils)")
	}
}

// fakeShell is the head of a program for this processor.
func fakeShell() []byte {
	b := make([]byte, 64)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	binary.LittleEndian.PutUint16(b[18:], uint16(hostMachine()))
	return b
}

var day = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// archive makes a tar; an entry without a mode gets a usual one.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range entries {
		content := []byte(h.Linkname)
		if h.Typeflag == tar.TypeReg || h.Typeflag == 0 {
			h.Typeflag, h.Size, h.Linkname = tar.TypeReg, int64(len(content)), ""
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if h.ModTime.IsZero() {
			h.ModTime = day
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// reg is a file entry: archive takes its content from Linkname.
func reg(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: content}
}

func link(kind byte, name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: kind, Linkname: target}
}

// withShell puts what every root filesystem needs before the entries.
func withShell(entries ...tar.Header) []tar.Header {
	return append([]tar.Header{reg("bin/sh", string(fakeShell()))}, entries...)
}

// mounted shows an image to f, read-only, in a mount namespace that ends with
// the test.
func mounted(t *testing.T, img Image, f func(root string)) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// The holder of the namespace mounts and then waits for its input to end.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount -t erofs -o loop,ro "$1" "$2" && echo ready && cat >/dev/null; umount "$2"`, "sh", img.Path, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if n, _ := out.Read(b); n == 0 {
		cmd.Wait()
		if strings.Contains(errs.String(), "unknown filesystem") || strings.Contains(errs.String(), "loop") {
			t.Skipf("NOT TESTED: this kernel cannot mount EROFS: %s", errs.String())
		}
		t.Fatalf("mount: %s", errs.String())
	}
	f(fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, dir))
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("unmount: %v: %s", err, errs.String())
	}
}

// inRoot runs a script as the user in a writable copy-on-write view of an
// image.
func inRoot(t *testing.T, img Image, script string) (string, error) {
	t.Helper()
	upper := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec", `
mkdir "$2/low"; mount -t erofs -o loop,ro "$1" "$2/low"
mkdir "$2/tmp"; mount -t tmpfs none "$2/tmp"; mkdir "$2/tmp/up" "$2/tmp/work" "$2/root"
mount -t overlay -o "lowerdir=$2/low,upperdir=$2/tmp/up,workdir=$2/tmp/work" none "$2/root"
mount -t proc none "$2/root/proc"; mount --bind /dev "$2/root/dev"
exec chroot "$2/root" su -l user -c "$3"`, "sh", img.Path, upper, script)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func noMounts(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	real, _ := filepath.EvalSymlinks(dir)
	for _, d := range []string{dir, real} {
		if d != "" && strings.Contains(string(b), d) {
			t.Errorf("a mount is left below %s", d)
		}
	}
}

func wantCode(t *testing.T, err error, code api.Code, text string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if api.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Fatalf("got %v, want %s with %q", err, code, text)
	}
}
