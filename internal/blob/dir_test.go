package blob_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/blob/blobtest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s blob.Store, key, content string) {
	t.Helper()
	must(t, s.Put(t.Context(), key, strings.NewReader(content), int64(len(content))))
}

func list(t *testing.T, s blob.Store) []string {
	t.Helper()
	var keys []string
	must(t, s.List(t.Context(), "", func(i blob.Info) error { keys = append(keys, i.Key); return nil }))
	return keys
}

func wantKeys(t *testing.T, s blob.Store, want ...string) {
	t.Helper()
	if got := list(t, s); !slices.Equal(got, want) {
		t.Errorf("listed: %q, want %q", got, want)
	}
}

// files gives what is in a directory, the names alone.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDirWhereNothingStays(t *testing.T) {
	t.Parallel()
	blobtest.Neighbours(t, openDir(t, t.TempDir()), "place/of/all/")
}

func TestDirIsSharedByOpeners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openDir(t, dir), openDir(t, dir)
	put(t, a, "x/y", "content")
	wantKeys(t, b, "x/y")
	must(t, b.Delete(t.Context(), "x/y"))
	wantKeys(t, a)
	if left := files(t, dir); !slices.Equal(left, []string{".tmp~"}) {
		t.Errorf("left: %q", left)
	}
}

// TestDirLeavesForeignFilesAlone has everything in the directory that an object
// is not.
func TestDirLeavesForeignFilesAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openDir(t, dir)
	put(t, s, "a/b", "ours")
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("hunter2"), 0o600))
	for name, make := range map[string]func(path string) error{
		"notes.txt~": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a/with space": func(p string) error {
			return os.WriteFile(p, nil, 0o600)
		},
		"a/link":  func(p string) error { return os.Symlink(outside, p) },
		"linked":  func(p string) error { return os.Symlink(filepath.Dir(outside), p) },
		"a/pipe":  func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"a/empty": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		must(t, make(filepath.Join(dir, name)))
	}
	wantKeys(t, s, "a/b")
	for _, key := range []string{"a/link", "linked/secret"} {
		if r, err := s.Get(t.Context(), key); err == nil {
			text, _ := io.ReadAll(r)
			r.Close()
			t.Errorf("%s leads out of the store: %q", key, text)
		}
	}
	for _, key := range []string{"a/pipe", "a/empty"} {
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Stat of %s: %v", key, err)
		}
		must(t, s.Delete(t.Context(), key))
		if _, err := os.Lstat(filepath.Join(dir, key)); err != nil {
			t.Errorf("Delete of what is not an object: %v", err)
		}
	}
	openDir(t, dir)
	if _, err := os.Lstat(filepath.Join(dir, "notes.txt~")); err != nil {
		t.Error(err)
	}
}

func TestDirRefusesAKeyBelowAKey(t *testing.T) {
	t.Parallel()
	s := openDir(t, t.TempDir())
	put(t, s, "a/b", "first")
	for _, key := range []string{"a", "a/b/c", "a/b/c/d"} {
		err := s.Put(t.Context(), key, strings.NewReader("x"), 1)
		if api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("Put of %s: %v", key, err)
		}
	}
	wantKeys(t, s, "a/b")
}

// slow is a reader that says when it was asked, and goes on when it is told to.
type slow struct {
	asked chan struct{}
	goOn  chan struct{}
	once  sync.Once
	rest  io.Reader
}

func newSlow(content string) *slow {
	return &slow{asked: make(chan struct{}), goOn: make(chan struct{}), rest: strings.NewReader(content)}
}

func (s *slow) Read(p []byte) (int, error) {
	s.once.Do(func() {
		close(s.asked)
		<-s.goOn
	})
	return s.rest.Read(p)
}

// TestDirSweepsWhatTheDeadLeft opens the store beside a Put that lives and after
// one whose process was killed.
func TestDirSweepsWhatTheDeadLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openDir(t, dir)
	living := newSlow("content")
	done := make(chan error, 1)
	go func() { done <- s.Put(t.Context(), "living", living, 7) }()
	<-living.asked

	dead := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestDirPutThatIsKilled")
	dead.Env = append(os.Environ(), "BLOB_TEST_DIR="+dir)
	out, err := dead.StdoutPipe()
	must(t, err)
	must(t, dead.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Error(err) // it says that its Put is under way
	}
	must(t, dead.Process.Kill())
	_ = dead.Wait()

	temp := filepath.Join(dir, ".tmp~")
	if left := files(t, temp); len(left) != 2 {
		t.Errorf("before the sweep: %q", left)
	}
	openDir(t, dir)
	if left := files(t, temp); len(left) != 1 {
		t.Errorf("after the sweep: %q", left)
	}
	wantKeys(t, s)
	close(living.goOn)
	must(t, <-done)
	wantKeys(t, s, "living")
	if left := files(t, temp); len(left) != 0 {
		t.Errorf("in the end: %q", left)
	}
}

// TestDirPutThatIsKilled is the other process of the test above.
func TestDirPutThatIsKilled(t *testing.T) {
	dir := os.Getenv("BLOB_TEST_DIR")
	if dir == "" {
		return // it is not
	}
	d, err := blob.NewDir(dir)
	must(t, err)
	content := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), sayAndWait{})
	t.Fatal(d.Put(t.Context(), "dead", content, 2<<20))
}

type sayAndWait struct{}

func (sayAndWait) Read([]byte) (int, error) {
	_, _ = os.Stdout.Write([]byte("."))
	time.Sleep(time.Hour)
	return 0, io.EOF
}

// TestDirOpenersDoNotHarmPuts opens the store again and again while it is written.
func TestDirOpenersDoNotHarmPuts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openDir(t, dir)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				d, err := blob.NewDir(dir)
				if err != nil {
					t.Errorf("NewDir: %v", err)
					return
				}
				d.Close()
			}
		})
	}
	for range 100 {
		put(t, s, "k", "content")
	}
	close(stop)
	wg.Wait()
}
