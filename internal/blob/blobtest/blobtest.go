// Package blobtest is what every blob.Store must do, as tests: one check for each
// rule of package blob.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/blob"
)

// large is more than a store sends in one piece, and no multiple of anything.
const large = 20<<20 + 7

// patience bounds what a check waits for. It is there to end a hang; no rule is
// about time.
const patience = 2 * time.Minute

// check is one rule.
type check struct {
	name string
	run  func(t *testing.T, s blob.Store)
}

// Run checks a kind of store. open gives an empty one and closes it at the end of
// the test; it is called for each check.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	checks := []check{
		{"WhatWasPutIsRead", whatWasPutIsRead},
		{"RangesAreReadAsTheyAre", rangesAreReadAsTheyAre},
		{"PutReplaces", putReplaces},
		{"ReadersSeeOneVersion", readersSeeOneVersion},
		{"AnOpenObjectStaysOneVersion", anOpenObjectStaysOneVersion},
		{"PutsOfOneKeyAtOnce", putsOfOneKeyAtOnce},
		{"PutsAndDeletesSideBySide", putsAndDeletesSideBySide},
		{"ContentOfAnotherSizeIsRefused", contentOfAnotherSizeIsRefused},
		{"FailingReaderLeavesNothing", failingReaderLeavesNothing},
		{"CancelledPutLeavesNothing", cancelledPutLeavesNothing},
		{"EndedContextIsAnError", endedContextIsAnError},
		{"OddKeysAreRefused", oddKeysAreRefused},
		{"MissingKeysAreNotFound", missingKeysAreNotFound},
		{"KeysThatOthersBeginWith", keysThatOthersBeginWith},
		{"ListIsInOrderOfKeys", listIsInOrderOfKeys},
		{"ListGivesMany", listGivesMany},
		{"ListEndsWithItsCaller", listEndsWithItsCaller},
		{"DeleteForgets", deleteForgets},
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// content is size bytes that depend on seed, and on their place.
func content(seed uint64, size int) []byte {
	b := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{0: byte(seed), 1: byte(seed >> 8)})
	_, _ = rng.Read(b) // never fails
	return b
}

func put(t *testing.T, s blob.Store, key string, b []byte) {
	t.Helper()
	if err := s.Put(deadline(t), key, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatalf("Put of %s: %v", key, err)
	}
}

func get(t *testing.T, s blob.Store, key string) []byte {
	t.Helper()
	b, err := read(deadline(t), s, key)
	if err != nil {
		t.Fatalf("Get of %s: %v", key, err)
	}
	return b
}

func read(ctx context.Context, s blob.Store, key string) ([]byte, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func list(t *testing.T, s blob.Store, prefix string) []string {
	t.Helper()
	keys := []string{}
	err := s.List(deadline(t), prefix, func(i blob.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil {
		t.Fatalf("List of %q: %v", prefix, err)
	}
	return keys
}

func wantNothing(t *testing.T, s blob.Store, key string) {
	t.Helper()
	if i, err := s.Stat(deadline(t), key); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Stat gives %+v, %v", i, err)
	}
	if b, err := read(deadline(t), s, key); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Get gives %d bytes, %v", len(b), err)
	}
	if keys := list(t, s, ""); len(keys) != 0 {
		t.Errorf("listed: %q", keys)
	}
}

func wantContent(t *testing.T, s blob.Store, key string, want []byte) {
	t.Helper()
	if got := get(t, s, key); !bytes.Equal(got, want) {
		t.Errorf("%s: %s", key, difference(got, want))
	}
}

func difference(got, want []byte) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("%d bytes, want %d, the same up to %d", len(got), len(want), at)
}

func whatWasPutIsRead(t *testing.T, s blob.Store) {
	if s.URL() == "" {
		t.Error("the store does not say where it is")
	}
	before := time.Now()
	for i, size := range []int{0, 1, 4096, 1<<20 + 1, 16 << 20, large} {
		key := fmt.Sprintf("sizes/of-%d", size)
		want := content(uint64(i), size)
		put(t, s, key, want)
		wantContent(t, s, key, want)
		info, err := s.Stat(deadline(t), key)
		if err != nil || info.Key != key || info.Size != int64(size) {
			t.Errorf("Stat gives %+v, %v", info, err)
		}
		// An hour of slack: the clock may be another machine's.
		if d := info.Modified.Sub(before); d < -time.Hour || d > time.Hour {
			t.Errorf("modified %v", info.Modified)
		}
	}
	err := s.List(deadline(t), "sizes/", func(i blob.Info) error {
		if want := fmt.Sprintf("sizes/of-%d", i.Size); i.Key != want || i.Modified.IsZero() {
			t.Errorf("List gives %+v", i)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func rangesAreReadAsTheyAre(t *testing.T, s blob.Store) {
	const size = 3<<20 + 11
	whole := content(1, size)
	put(t, s, "object", whole)
	put(t, s, "empty", nil)
	cases := []struct {
		key     string
		off     int64
		length  int
		want    int
		wantEOF bool
	}{
		{"object", 0, 1, 1, false},
		{"object", 0, 4096, 4096, false},
		{"object", 1<<20 - 1, 1 << 20, 1 << 20, false},
		{"object", size - 1, 1, 1, false},
		{"object", size - 10, 100, 10, true},
		{"object", size, 1, 0, true},
		{"object", size + 5, 100, 0, true},
		{"object", 1 << 40, 1, 0, true},
		{"object", 0, size + 1, size, true},
		{"object", 7, 0, 0, false},
		{"empty", 0, 1, 0, true},
		{"empty", 5, 1, 0, true},
	}
	for _, c := range cases {
		p := make([]byte, c.length)
		n, err := s.ReadAt(deadline(t), c.key, p, c.off)
		// At the very end both answers are io.ReaderAt's.
		if n == c.length && err == io.EOF {
			err = nil
		}
		if n != c.want || (err == io.EOF) != c.wantEOF || err != nil && err != io.EOF {
			t.Errorf("ReadAt of %s, %d bytes at %d: %d, %v", c.key, c.length, c.off, n, err)
			continue
		}
		if n > 0 && !bytes.Equal(p[:n], whole[c.off:c.off+int64(n)]) {
			t.Errorf("ReadAt of %d bytes at %d gives others", c.length, c.off)
		}
	}
	if _, err := s.ReadAt(deadline(t), "object", make([]byte, 1), -1); err == nil || err == io.EOF {
		t.Errorf("ReadAt before the beginning: %v", err)
	}
}

func deleteForgets(t *testing.T, s blob.Store) {
	put(t, s, "a/b/c", content(1, 10))
	put(t, s, "a/b/d", content(2, 10))
	for range 2 {
		if err := s.Delete(deadline(t), "a/b/c"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(deadline(t), "a/b/c"); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Get after Delete: %v", err)
	}
	wantContent(t, s, "a/b/d", content(2, 10))
	if err := s.Delete(deadline(t), "a/b/d"); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, s, "a/b/d")
	put(t, s, "a/b/c", content(3, 10))
	wantContent(t, s, "a/b/c", content(3, 10))
	put(t, s, "a2", content(4, 10)) // where nothing is any more, anything may be
}
