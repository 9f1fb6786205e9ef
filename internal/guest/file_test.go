//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	dir := t.TempDir()
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		want := make([]byte, size)
		rand.Read(want)
		path := filepath.Join(dir, "new", "deep", fmt.Sprint(size))
		if err := d.WriteFile(ctx, path, "daemon", bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		r, n, err := d.ReadFile(ctx, path, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || n != int64(size) || !bytes.Equal(got, want) {
			t.Fatalf("%d: %d bytes of %d came back, %v", size, len(got), n, err)
		}
		info, err := d.Stat(ctx, path, "")
		if err != nil || info.Owner != "daemon" || info.Group != "daemon" || info.Mode != "-rw-r--r--" || info.Type != "file" || info.Size != int64(size) {
			t.Fatalf("%+v %v", info, err)
		}
	}
	info, err := d.Stat(ctx, filepath.Join(dir, "new"), "")
	if err != nil || info.Owner != "daemon" || info.Mode != "drwxr-xr-x" || info.Type != "directory" {
		t.Fatalf("%+v %v", info, err)
	}
	path := filepath.Join(dir, "short")
	for _, text := range []string{"something long", "short"} {
		if err := d.WriteFile(ctx, path, "root", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(path); string(got) != "short" {
		t.Fatalf("%q", got)
	}
	r, n, err := d.ReadFileRange(ctx, path, "", 1, 3)
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	if got, err := io.ReadAll(r); string(got) != "hor" || err != nil {
		t.Fatalf("%q %v", got, err)
	}
	r.Close()
	_, _, err = d.ReadFileRange(ctx, path, "", 100, -1)
	wantCode(t, err, api.CodeInvalidRequest)
	// A file of /proc says that it is empty.
	r, n, err = d.ReadFile(ctx, "/proc/sys/kernel/random/boot_id", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); len(got) != 37 || n != -1 && n != 37 || err != nil {
		t.Fatalf("%q %d %v", got, n, err)
	}
	r.Close()
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o644), unix.Mkfifo(fifo, 0o644)); err != nil {
		t.Fatal(err)
	}
	read := func(path string) error { _, _, err := d.ReadFile(ctx, path, ""); return err }
	write := func(path string) error { return d.WriteFile(ctx, path, "", strings.NewReader("x")) }
	stat := func(path string) error { _, err := d.Stat(ctx, path, ""); return err }
	list := func(path string) error { _, err := d.ListDir(ctx, path, "", 1); return err }
	mkdir := func(path string) error { _, err := d.MakeDir(ctx, path, ""); return err }
	move := func(path string) error { _, err := d.Move(ctx, path, filepath.Join(dir, "x"), ""); return err }
	remove := func(path string) error { return d.Remove(ctx, path, "") }
	for _, c := range []struct {
		name string
		err  error
		code api.Code
	}{
		{"read nothing", read(dir + "/no"), api.CodeFileNotFound},
		{"read directory", read(dir), api.CodeFileIsDirectory},
		{"read fifo", read(fifo), api.CodeFileInvalidPath},
		{"read below file", read(file + "/x"), api.CodeFileNotDirectory},
		{"read NUL", read("a\x00b"), api.CodeFileInvalidPath},
		{"read empty", read(""), api.CodeFileInvalidPath},
		{"read long", read("/" + strings.Repeat("a", 5000)), api.CodeFileInvalidPath},
		{"read other home", read("~other/x"), api.CodeFileInvalidPath},
		{"write directory", write(dir), api.CodeFileIsDirectory},
		{"write fifo", write(fifo), api.CodeFileInvalidPath},
		{"write below file", write(file + "/x"), api.CodeFileNotDirectory},
		{"write NUL", write("/tmp/a\x00b"), api.CodeFileInvalidPath},
		{"write user", d.WriteFile(ctx, dir+"/u", "nobody-here", strings.NewReader("x")), api.CodeInvalidRequest},
		{"stat nothing", stat(dir + "/no"), api.CodeFileNotFound},
		{"stat NUL", stat("/a\x00"), api.CodeFileInvalidPath},
		{"stat not UTF-8", stat("/a\xff"), api.CodeFileInvalidPath},
		{"list nothing", list(dir + "/no"), api.CodeFileNotFound},
		{"list file", list(file), api.CodeFileNotDirectory},
		{"mkdir again", mkdir(dir), api.CodeFileExists},
		{"mkdir file", mkdir(file), api.CodeFileNotDirectory},
		{"move nothing", move(dir + "/no"), api.CodeFileNotFound},
		{"remove root", remove("/tmp/.."), api.CodeFileInvalidPath},
		{"remove nothing", remove(dir + "/no"), ""},
		{"full", write("/dev/full"), api.CodeFileInvalidPath},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.code == "" {
				if c.err != nil {
					t.Fatal(c.err)
				}
				return
			}
			wantCode(t, c.err, c.code)
		})
	}
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("SKIPPED: a small filesystem cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	err := d.WriteFile(testContext(t), filepath.Join(dir, "big"), "", io.LimitReader(zeros{}, 64<<20))
	wantCode(t, err, api.CodeDiskFull)
	if _, err := os.Stat(filepath.Join(dir, "big")); !os.IsNotExist(err) {
		t.Fatalf("a file that could not be written is left: %v", err)
	}
	if err := d.Health(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestFilesInConstantMemory(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	path := filepath.Join(t.TempDir(), "big")
	const size = 300 << 20
	if err := d.WriteFile(ctx, path, "", io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	after := d.rssKB(t)
	r, n, err := d.ReadFile(ctx, path, "")
	if err != nil || n != size {
		t.Fatal(n, err)
	}
	defer r.Close()
	sum := sha256.New()
	if m, err := io.Copy(sum, r); err != nil || m != size {
		t.Fatal(m, err)
	}
	t.Logf("300 MiB: %d KB after writing, %d KB after reading", after, d.rssKB(t))
	if most := max(after, d.rssKB(t)); most > 40<<10 {
		t.Fatalf("the daemon grew to %d KB", most)
	}
}

// A source that breaks off leaves no new file behind.
func TestBrokenUpload(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	path := filepath.Join(t.TempDir(), "half")
	broken := errors.New("the other side left")
	err := d.WriteFile(testContext(t), path, "", io.MultiReader(io.LimitReader(zeros{}, 1<<20), failing{broken}))
	wantCode(t, err, api.CodeInvalidRequest)
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	eventually(t, "the half file is gone", func() bool { _, err := os.Stat(path); return os.IsNotExist(err) })

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	pr, pw := io.Pipe() // it never says anything
	defer pw.Close()
	defer pr.Close()
	wantCode(t, d.WriteFile(ctx, path, "", pr), api.CodeCanceled)
	time.AfterFunc(time.Second, d.kill)
	wantCode(t, d.WriteFile(testContext(t), path, "", pr), api.CodeSandboxDied)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestDirectories(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	dir := t.TempDir()
	if info, err := d.MakeDir(ctx, dir+"/a/b", "daemon"); err != nil || info.Path != dir+"/a/b" || info.Owner != "daemon" {
		t.Fatalf("%+v %v", info, err)
	}
	for _, f := range []string{"/a/b/z", "/a/c", "/link-target"} {
		if err := d.WriteFile(ctx, dir+f, "", strings.NewReader(f)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("link-target", dir+"/link"), os.Symlink("nowhere", dir+"/broken"), os.WriteFile(dir+"/bad\xff", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	names := func(depth int) string {
		l, err := d.ListDir(ctx, dir, "", depth)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range l {
			out = append(out, strings.TrimPrefix(e.Path, dir+"/")+":"+e.Type)
		}
		return strings.Join(out, " ")
	}
	if got, want := names(1), "a:directory bad\uFFFD:file broken:symlink link:file link-target:file"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if got, want := names(9), "a:directory a/b:directory a/b/z:file a/c:file bad\uFFFD:file broken:symlink link:file link-target:file"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if info, err := d.Stat(ctx, dir+"/link", ""); err != nil || info.Target != dir+"/link-target" || info.Type != "file" {
		t.Fatalf("%+v %v", info, err)
	}
	if info, err := d.Move(ctx, dir+"/a/b", dir+"/new/b", ""); err != nil || info.Path != dir+"/new/b" {
		t.Fatalf("%+v %v", info, err)
	}
	if err := d.Remove(ctx, dir+"/new", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/new"); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func TestLargeDirectories(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	dir := t.TempDir()
	fill := func(n int, name string) {
		for i := range n {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf(name, i)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(10_000, "file-%05d")
	l, err := d.ListDir(ctx, dir, "", 1)
	if err != nil || len(l) != 10_000 || l[9_999].Name != "file-09999" {
		t.Fatal(len(l), err)
	}
	fill(10_000, strings.Repeat("long", 40)+"-%05d")
	_, err = d.ListDir(ctx, dir, "", 1)
	wantCode(t, err, api.CodeTooLarge)
	if err := d.Health(ctx); err != nil {
		t.Fatal(err)
	}
}
