package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// open opens a store in dir. Options change the configuration of most tests.
func open(t testing.TB, dir string, blobs blob.Store, options ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Dir: dir, Blobs: blobs, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, o := range options {
		o(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func withKey(c *Config)                       { c.Key = bytes.Repeat([]byte{7}, keySize) }
func withCache(n int64) func(*Config)         { return func(c *Config) { c.CacheBytes = n } }
func withGrace(d time.Duration) func(*Config) { return func(c *Config) { c.Grace = d } }

// keep stages files and keeps them.
func keep(t testing.TB, s *Store, id string, files map[string][]byte) Record {
	t.Helper()
	r, err := tryKeep(t.Context(), s, id, files)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryKeep(ctx context.Context, s *Store, id string, files map[string][]byte) (Record, error) {
	if err := stage(s, id, files); err != nil {
		return Record{}, err
	}
	return s.Keep(ctx, Info{ID: id, CreatedAt: time.Unix(1e9, 0).UTC(), Data: json.RawMessage(`{"of":"` + id + `"}`)})
}

func stage(s *Store, id string, files map[string][]byte) error {
	if err := os.Mkdir(s.Stage(id), 0o700); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(s.Stage(id), name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func pack(t testing.TB, s *Store, id string) Packing {
	t.Helper()
	p, err := s.Pack(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// evictAll drops every raw form that is packed and not open.
func evictAll(t testing.TB, s *Store) {
	t.Helper()
	limit := s.cfg.CacheBytes
	s.cfg.CacheBytes = 0
	if err := s.evict(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.cfg.CacheBytes = limit
}

// read gives all files of an open snapshot.
func read(src *Source) (map[string][]byte, error) {
	out := map[string][]byte{}
	list, err := os.ReadDir(src.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if out[e.Name()], err = os.ReadFile(filepath.Join(src.Dir, e.Name())); err != nil {
			return nil, err
		}
	}
	for name, r := range src.Files {
		size := r.(interface{ Size() int64 }).Size()
		if out[name], err = io.ReadAll(io.NewSectionReader(r, 0, size)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check fails the test unless a snapshot has these files.
func check(t testing.TB, s *Store, id string, want map[string][]byte) {
	t.Helper()
	src, err := s.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(src)
	if err != nil {
		t.Error(err)
	} else if !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("snapshot %s has %v, want %v", id, sizes(got), sizes(want))
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

func sizes(files map[string][]byte) map[string]int {
	out := map[string]int{}
	for name, data := range files {
		out[name] = len(data)
	}
	return out
}

func wantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code || err == nil {
		t.Errorf("the error is %v, want %s", err, code)
	}
}

// noise gives n bytes that do not compress.
func noise(seed byte, n int) []byte {
	out := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(out)
	return out
}

// memory gives n bytes like those of a machine: some pages of zeros, some that
// compress, some that do not.
func memory(seed byte, n int) []byte {
	out := make([]byte, n)
	r := rand.New(rand.NewChaCha8([32]byte{seed}))
	random := noise(seed+100, n)
	for at := 0; at < n; {
		run := out[at:min(n, at+pageSize*(1+r.IntN(40)))]
		switch r.IntN(4) {
		case 0:
		case 1:
			copy(run, random[at:])
		default:
			for i := range run {
				if i%4 == 0 {
					run[i] = random[at+i]
				}
			}
		}
		at += len(run)
	}
	return out
}

// keysOf lists what is in a blob store below a prefix.
func keysOf(t testing.TB, b blob.Store, prefix string) []string {
	t.Helper()
	var out []string
	err := b.List(context.WithoutCancel(t.Context()), prefix, func(i blob.Info) error {
		out = append(out, i.Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// filesIn lists the names of a folder of a store.
func filesIn(t testing.TB, s *Store, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(s.path(dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// clocked is a blob store whose clock a test moves on.
type clocked struct {
	blob.Store
	mu   sync.Mutex
	on   time.Duration
	puts map[string]time.Duration // when each was put
}

func newClocked(b blob.Store) *clocked { return &clocked{Store: b, puts: map[string]time.Duration{}} }

func (c *clocked) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on += d
}

func (c *clocked) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	err := c.Store.Put(ctx, key, r, size)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.puts[key] = c.on
	return err
}

func (c *clocked) set(i blob.Info) blob.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.Modified = i.Modified.Add(c.puts[i.Key])
	return i
}

func (c *clocked) Stat(ctx context.Context, key string) (blob.Info, error) {
	i, err := c.Store.Stat(ctx, key)
	return c.set(i), err
}

func (c *clocked) List(ctx context.Context, prefix string, each func(blob.Info) error) error {
	return c.Store.List(ctx, prefix, func(i blob.Info) error { return each(c.set(i)) })
}

// watched is a blob store that counts, delays, fails and holds what a test says.
type watched struct {
	blob.Store
	reads   atomic.Int64
	most    atomic.Int64 // bytes of the largest read
	at      atomic.Int64 // reads under way
	peak    atomic.Int64 // most of them
	latency time.Duration
	away    atomic.Bool // nothing answers
	full    atomic.Bool
	puts    atomic.Int64
}

func (w *watched) down() error {
	if w.away.Load() {
		return api.Errorf(api.CodeSnapshotStore, "the blob store is away")
	}
	return nil
}

func (w *watched) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	if err := w.down(); err != nil {
		return 0, err
	}
	w.reads.Add(1)
	w.most.Store(max(w.most.Load(), int64(len(p))))
	w.peak.Store(max(w.peak.Load(), w.at.Add(1)))
	defer w.at.Add(-1)
	time.Sleep(w.latency)
	return w.Store.ReadAt(ctx, key, p, off)
}

func (w *watched) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := w.down(); err != nil {
		return err
	}
	if w.full.Load() {
		return api.Errorf(api.CodeSnapshotStoreFull, "the blob store is full")
	}
	w.puts.Add(1)
	return w.Store.Put(ctx, key, r, size)
}

func (w *watched) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := w.down(); err != nil {
		return nil, err
	}
	return w.Store.Get(ctx, key)
}

func (w *watched) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := w.down(); err != nil {
		return blob.Info{}, err
	}
	return w.Store.Stat(ctx, key)
}

func (w *watched) List(ctx context.Context, prefix string, each func(blob.Info) error) error {
	if err := w.down(); err != nil {
		return err
	}
	return w.Store.List(ctx, prefix, each)
}

func ids(list []Record) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}
