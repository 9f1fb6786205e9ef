package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

func oddKeysAreRefused(t *testing.T, s blob.Store) {
	odd := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/../b", "../a", "../../etc/passwd", "a/..",
		"a b", "a\x00", "a\n", "ä", "a\\b", "a:b", "a?b", "a%2fb", "a~", ".tmp~/x", "a*", "a+b", "\xff",
		"1/2/3/4/5/6/7/8/9/10/11", strings.Repeat("a", 201), strings.Repeat(strings.Repeat("a", 200)+"/", 4) + "a",
	}
	ctx := deadline(t)
	for _, key := range odd {
		calls := map[string]func() error{
			"Put":    func() error { return s.Put(ctx, key, bytes.NewReader(nil), 0) },
			"Get":    func() error { _, err := s.Get(ctx, key); return err },
			"Stat":   func() error { _, err := s.Stat(ctx, key); return err },
			"ReadAt": func() error { _, err := s.ReadAt(ctx, key, make([]byte, 1), 0); return err },
			"Delete": func() error { return s.Delete(ctx, key) },
		}
		for name, call := range calls {
			if err := call(); api.CodeOf(err) != api.CodeInvalidRequest || errors.Is(err, blob.ErrNotFound) {
				t.Errorf("%s of %.40q: %v", name, key, err)
			}
		}
		if blob.ValidKey(key) {
			t.Errorf("%.40q passes for a key", key)
		}
	}
	if keys := list(t, s, ""); len(keys) != 0 {
		t.Errorf("listed: %q", keys)
	}
	long := strings.Repeat(strings.Repeat("a", 199)+"/", 3) + strings.Repeat("b", 200)
	for _, key := range []string{"...", "..a", "-", "_", ".a", "1/2/3/4/5/6/7/8/9/10", "A/a", long} {
		if !blob.ValidKey(key) {
			t.Errorf("%.40q does not pass for a key", key)
		}
		put(t, s, key, []byte(key))
		wantContent(t, s, key, []byte(key))
	}
}

func missingKeysAreNotFound(t *testing.T, s blob.Store) {
	ctx := deadline(t)
	for _, key := range []string{"a", "a/b", "a/b/c"} {
		_, err := s.Get(ctx, key)
		if !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Get of %s: %v", key, err)
		}
		if _, err = s.Stat(ctx, key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Stat of %s: %v", key, err)
		}
		for _, n := range []int{0, 1} {
			// Nothing of nothing may be read without looking.
			if _, err = s.ReadAt(ctx, key, make([]byte, n), 0); !errors.Is(err, blob.ErrNotFound) {
				t.Errorf("ReadAt of %s: %v", key, err)
			}
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete of %s: %v", key, err)
		}
	}
}

// keysThatOthersBeginWith asks for what is above and below an object.
func keysThatOthersBeginWith(t *testing.T, s blob.Store) {
	put(t, s, "a/b", content(1, 10))
	ctx := deadline(t)
	for _, key := range []string{"a", "a/b/c", "a/bc", "a/B"} {
		if _, err := s.Stat(ctx, key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Stat of %s: %v", key, err)
		}
		if _, err := s.Get(ctx, key); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Get of %s: %v", key, err)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete of %s: %v", key, err)
		}
	}
	wantContent(t, s, "a/b", content(1, 10))
	if keys := list(t, s, ""); !slices.Equal(keys, []string{"a/b"}) {
		t.Errorf("listed: %q", keys)
	}
}

func listIsInOrderOfKeys(t *testing.T, s blob.Store) {
	// A slash comes after a dash and a dot, and before letters and digits.
	keys := []string{
		"A", "B/x", "a", "a-", "a-b/c", "a.b", "aa/b-c", "aa/b/c", "aa/b0", "aa-x", "aa.x", "aa0", "aaa",
		"b/1", "b/10", "b/2", "b/2.", "z/z/z/z/z", "_", ".hidden", "..x/y",
	}
	for _, k := range keys {
		put(t, s, k, []byte(k))
	}
	slices.Sort(keys)
	for _, prefix := range []string{
		"", "a", "aa", "aa/", "aa/b", "aa/b/", "aa/b/c", "b/", "b/1", "z/z/z", "B", ".", "..x", "nothing", "nothing/at/all",
		"a/", "aa/b/c/", "/", "../", "aa//", "./", "aa/../", "ä", " ", strings.Repeat("x", 5000), strings.Repeat("x/", 20), "\x00",
	} {
		want := []string{}
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		if got := list(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("List of %.40q gives %q, want %q", prefix, got, want)
		}
	}
}

// listGivesMany lists more than any store gives in one page.
func listGivesMany(t *testing.T, s blob.Store) {
	const many, workers = 2500, 8
	ctx := deadline(t)
	want := make([]string, many)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < many; i += workers {
				want[i] = fmt.Sprintf("many/%02x/%d", i%7, i)
				if err := s.Put(ctx, want[i], strings.NewReader("x"), 1); err != nil {
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(want)
	got := list(t, s, "many/")
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d, in order: %v", len(got), len(want), slices.IsSorted(got))
	}
}

func listEndsWithItsCaller(t *testing.T, s blob.Store) {
	for i := range 20 {
		put(t, s, fmt.Sprintf("k%d", i), nil)
	}
	enough := errors.New("enough")
	seen := 0
	err := s.List(deadline(t), "", func(blob.Info) error {
		if seen++; seen == 5 {
			return enough
		}
		return nil
	})
	if err != enough || seen != 5 {
		t.Errorf("%v after %d", err, seen)
	}
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	err = s.List(ctx, "", func(blob.Info) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("List whose context ended: %v", err)
	}
	// What is listed may be deleted by who lists it.
	err = s.List(deadline(t), "k", func(i blob.Info) error { return s.Delete(deadline(t), i.Key) })
	if err != nil {
		t.Error(err)
	}
	if keys := list(t, s, ""); len(keys) != 0 {
		t.Errorf("listed: %q", keys)
	}
}
