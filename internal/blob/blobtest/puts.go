package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pandastack/pandastack/internal/blob"
)

func putReplaces(t *testing.T, s blob.Store) {
	for i, size := range []int{100, large, 0, 5, large + 1, 1} {
		want := content(uint64(i), size)
		put(t, s, "one", want)
		wantContent(t, s, "one", want)
	}
	if keys := list(t, s, ""); len(keys) != 1 {
		t.Errorf("listed: %q", keys)
	}
}

// version is content that says of itself which it is.
func version(n int) []byte { return bytes.Repeat([]byte{byte(n)}, 200<<10+n) }

func wantOneVersion(t *testing.T, b []byte) {
	t.Helper()
	if len(b) == 0 || !bytes.Equal(b, version(int(b[0]))) {
		t.Errorf("%d bytes that are no version", len(b))
	}
}

func readersSeeOneVersion(t *testing.T, s blob.Store) {
	put(t, s, "k", version(1))
	ctx := deadline(t)
	var done atomic.Bool
	var readers, writers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				b, err := read(ctx, s, "k")
				if err != nil {
					t.Errorf("Get while it is replaced: %v", err)
					return
				}
				wantOneVersion(t, b)
			}
		})
	}
	for w := range 2 {
		writers.Go(func() {
			for i := range 20 {
				b := version(1 + w*20 + i)
				if err := s.Put(ctx, "k", bytes.NewReader(b), int64(len(b))); err != nil {
					t.Errorf("Put: %v", err)
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
}

// anOpenObjectStaysOneVersion replaces and deletes an object that is half read:
// the rest is the same version's, or an error.
func anOpenObjectStaysOneVersion(t *testing.T, s blob.Store) {
	first := content(1, large)
	put(t, s, "k", first)
	r, err := s.Get(deadline(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	half := make([]byte, large/2)
	if _, err := io.ReadFull(r, half); err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", content(2, large))
	if err := s.Delete(deadline(t), "k"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Logf("the rest of an object that was replaced: %v", err)
	}
	if got := append(half, rest...); err == nil && !bytes.Equal(got, first) || !bytes.HasPrefix(first, got) {
		t.Errorf("two versions in one reading: %s", difference(got, first))
	}
}

func putsOfOneKeyAtOnce(t *testing.T, s blob.Store) {
	ctx := deadline(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			b := version(1 + i)
			if err := s.Put(ctx, "same/key", bytes.NewReader(b), int64(len(b))); err != nil {
				t.Errorf("Put: %v", err)
			}
		})
	}
	wg.Wait()
	wantOneVersion(t, get(t, s, "same/key"))
	if keys := list(t, s, ""); len(keys) != 1 {
		t.Errorf("listed: %q", keys)
	}
}

func putsAndDeletesSideBySide(t *testing.T, s blob.Store) {
	put(t, s, "place/of/all/that/stays", nil)
	Neighbours(t, s, "place/of/all/")
	if keys := list(t, s, ""); len(keys) != 1 {
		t.Errorf("listed: %q", keys)
	}
}

// Neighbours has objects under a prefix come and go. Where nothing else is under
// it, a store that has directories removes it with the last of them, and may not
// take with it the place of one that is coming. That is not part of Run, because
// the server that S3 is tested with does so.
func Neighbours(t *testing.T, s blob.Store, prefix string) {
	t.Helper()
	ctx := deadline(t)
	var wg sync.WaitGroup
	for w := range 4 {
		key := fmt.Sprintf("%s%d", prefix, w)
		wg.Go(func() {
			for range 50 {
				if err := s.Put(ctx, key, bytes.NewReader([]byte(key)), int64(len(key))); err != nil {
					t.Errorf("Put: %v", err)
					return
				}
				if b, err := read(ctx, s, key); err != nil || string(b) != key {
					t.Errorf("Get after Put: %q, %v", b, err)
				}
				if err := s.Delete(ctx, key); err != nil {
					t.Errorf("Delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for w := range 4 {
		if _, err := s.Stat(ctx, fmt.Sprintf("%s%d", prefix, w)); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Stat after Delete: %v", err)
		}
	}
}

func contentOfAnotherSizeIsRefused(t *testing.T, s blob.Store) {
	cases := []struct {
		has  int
		said int64
	}{
		{0, 1}, {1, 0}, {100, 101}, {101, 100}, {5, -1},
		{large - 1, large}, {large + 1, large}, {17 << 20, 300 << 20}, {16<<20 + 1, 16 << 20},
	}
	for _, c := range cases {
		err := s.Put(deadline(t), "k", bytes.NewReader(content(1, c.has)), c.said)
		if !errors.Is(err, blob.ErrSize) {
			t.Errorf("Put of %d bytes as %d: %v", c.has, c.said, err)
		}
		wantNothing(t, s, "k")
	}
	put(t, s, "k", content(2, 10))
	if err := s.Put(deadline(t), "k", bytes.NewReader(content(1, 5)), 6); !errors.Is(err, blob.ErrSize) {
		t.Errorf("Put: %v", err)
	}
	wantContent(t, s, "k", content(2, 10))
}

var errReader = errors.New("the reader's own trouble")

// failing gives size bytes and then an error.
func failing(size int) io.Reader {
	return io.MultiReader(bytes.NewReader(content(1, size)), brokenReader{})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errReader }

func failingReaderLeavesNothing(t *testing.T, s blob.Store) {
	for _, size := range []int{0, 10, 1 << 20, large} {
		for _, said := range []int64{int64(size), int64(size) + 1, large * 2} {
			if err := s.Put(deadline(t), "k", failing(size), said); !errors.Is(err, errReader) {
				t.Errorf("Put of a reader that fails after %d of %d bytes: %v", size, said, err)
			}
			wantNothing(t, s, "k")
		}
	}
	put(t, s, "k", content(2, large))
	if err := s.Put(deadline(t), "k", failing(large-1), large); !errors.Is(err, errReader) {
		t.Errorf("Put: %v", err)
	}
	wantContent(t, s, "k", content(2, large))
}

// ending is a reader that ends a context on its way.
type ending struct {
	io.Reader
	after int
	end   context.CancelFunc
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if e.after -= n; e.after < 0 {
		e.end()
	}
	return n, err
}

func cancelledPutLeavesNothing(t *testing.T, s blob.Store) {
	for _, size := range []int{1, 1 << 20, large} {
		for _, after := range []int{0, size / 2, size - 1} {
			ctx, cancel := context.WithCancel(t.Context())
			err := s.Put(ctx, "k", &ending{bytes.NewReader(content(1, size)), after, cancel}, int64(size))
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Put given up after %d of %d bytes: %v", after, size, err)
			}
			wantNothing(t, s, "k")
		}
	}
}

func endedContextIsAnError(t *testing.T, s blob.Store) {
	put(t, s, "k", content(1, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := map[string]func() error{
		"Put":    func() error { return s.Put(ctx, "k", bytes.NewReader(content(2, 10)), 10) },
		"Get":    func() error { _, err := s.Get(ctx, "k"); return err },
		"Stat":   func() error { _, err := s.Stat(ctx, "k"); return err },
		"ReadAt": func() error { _, err := s.ReadAt(ctx, "k", make([]byte, 1), 0); return err },
		"Delete": func() error { return s.Delete(ctx, "k") },
		"List":   func() error { return s.List(ctx, "", func(blob.Info) error { return nil }) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantContent(t, s, "k", content(1, 10))
}
