package snapshot

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/blob"
	"github.com/pandastack/pandastack/internal/blob/s3test"
)

// BenchmarkCut cuts and names the chunks of 64 MB.
func BenchmarkCut(b *testing.B) {
	data := noise(1, 64<<20)
	b.SetBytes(int64(len(data)))
	k := &keys{}
	for _, named := range []bool{false, true} {
		b.Run("named="+strconv.FormatBool(named), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				c := newCutter(bytes.NewReader(data), int64(len(data)))
				for p, err := c.next(); err != io.EOF; p, err = c.next() {
					if named {
						k.id(p.data)
					}
				}
			}
		})
	}
}

// BenchmarkKeep keeps 64 MB that a driver has just written. Only Keep is timed.
func BenchmarkKeep(b *testing.B) {
	s := open(b, b.TempDir(), nil)
	files := map[string][]byte{"pages": memory(1, 60<<20), "state": noise(2, 4<<20), "meta": noise(3, 4000)}
	b.SetBytes(64 << 20)
	for i := range b.N {
		b.StopTimer()
		id := "s" + strconv.Itoa(i)
		if err := stage(s, id, files); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := s.Keep(b.Context(), Info{ID: id}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Delete(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPack packs 64 MB: new, and once more as its own child.
func BenchmarkPack(b *testing.B) {
	files := map[string][]byte{"pages": memory(1, 64<<20)}
	for _, child := range []bool{false, true} {
		b.Run("child="+strconv.FormatBool(child), func(b *testing.B) {
			b.SetBytes(64 << 20)
			for i := range b.N {
				b.StopTimer()
				blobs, err := blob.NewDir(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				s := open(b, b.TempDir(), blobs, func(c *Config) { c.Log = nil })
				id := "s" + strconv.Itoa(i)
				keep(b, s, id, files)
				if child {
					pack(b, s, id)
					id += "-child"
					keep(b, s, id, files)
				}
				b.StartTimer()
				pack(b, s, id)
				b.StopTimer()
				blobs.Close()
				os.RemoveAll(s.cfg.Dir)
			}
		})
	}
}

// BenchmarkStart opens a packed snapshot of 256 MB and reads all of it as a
// machine does: faults here and there, and four readers that load the rest in
// order. It reports when the first hundred faults were answered.
func BenchmarkStart(b *testing.B) {
	data := memory(1, 256<<20)
	dir, err := blob.NewDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	for _, bm := range []struct {
		name  string
		blobs func(b *testing.B) blob.Store
	}{
		{"dir", func(*testing.B) blob.Store { return dir }},
		{"dir-20ms", func(*testing.B) blob.Store { return &watched{Store: dir, latency: 20 * time.Millisecond} }},
		{"s3-20ms", func(b *testing.B) blob.Store { return s3test.New(b, s3test.WithLatency(20*time.Millisecond)).Open("") }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			blobs := bm.blobs(b)
			s := packed(b, blobs, data, func(c *Config) { c.Prefix = bm.name + "/" })
			for _, learned := range []bool{false, true} {
				b.Run("learned="+strconv.FormatBool(learned), func(b *testing.B) { startBench(b, s, learned) })
			}
		})
	}
}

func startBench(b *testing.B, s *Store, learned bool) {
	b.SetBytes(256 << 20)
	var opened, faulted time.Duration
	run := func() {
		s.cache = newChunkCache(cacheLimit)
		os.RemoveAll(s.path(localDir, s.snaps["a"].name(), filesDir))
		began := time.Now()
		src, err := s.Open(b.Context(), "a")
		if err != nil {
			b.Fatal(err)
		}
		opened += time.Since(began)
		faulted += load(b, src.Files["pages"], 256<<20, began)
		if err := src.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if learned {
		run()
		opened, faulted = 0, 0
	}
	b.ResetTimer()
	for range b.N {
		if !learned {
			os.Remove(s.path(orderDir, s.snaps["a"].name()))
		}
		run()
	}
	b.ReportMetric(float64(opened.Milliseconds())/float64(b.N), "open-ms")
	b.ReportMetric(float64(faulted.Milliseconds())/float64(b.N), "faults-ms")
}

// load reads all of f and gives when the faults were answered.
func load(b *testing.B, f io.ReaderAt, size int64, began time.Time) (faulted time.Duration) {
	var wg sync.WaitGroup
	next := make(chan int64)
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		page := make([]byte, pageSize)
		for range 100 {
			// What a machine touches first lies in a few places.
			off := (r.Int64N(10)*size/10 + r.Int64N(2<<20)) &^ (pageSize - 1)
			if _, err := f.ReadAt(page, off); err != nil && err != io.EOF {
				b.Error(err)
			}
		}
		faulted = time.Since(began)
	})
	for range 4 {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			for off := range next {
				if _, err := f.ReadAt(buf, off); err != nil && err != io.EOF {
					b.Error(err)
				}
			}
		})
	}
	for off := int64(0); off < size; off += 1 << 20 {
		next <- off
	}
	close(next)
	wg.Wait()
	return faulted
}
