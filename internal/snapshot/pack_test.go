package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

func TestPackAndBack(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*Config){"plain": func(*Config) {}, "encrypted": withKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, blobs := t.TempDir(), blob.NewMemory()
			s := open(t, dir, blobs, option)
			files := map[string][]byte{
				"state": []byte("a small file"), "empty": nil, "pages": memory(1, 9<<20), "odd": noise(5, smallFile+123),
				"nearly": append(make([]byte, smallFile), 1), "zeros": make([]byte, smallFile+5),
			}
			keep(t, s, "a", files)
			p := pack(t, s, "a")
			var size int64
			for _, f := range files {
				size += int64(len(f))
			}
			if p.SizeBytes != size || p.ZeroBytes < 2*smallFile || p.StoredBytes == 0 || p.StoredBytes > size-p.ZeroBytes {
				t.Errorf("the packing is %+v of %d bytes", p, size)
			}
			if again := pack(t, s, "a"); again != p {
				t.Errorf("packed again: %+v, want %+v", again, p)
			}
			evictAll(t, s)
			rec, err := s.Get(t.Context(), "a")
			if err != nil || rec.Raw || !rec.Packed || rec.StoredBytes != p.StoredBytes || rec.SizeBytes != size {
				t.Errorf("the record is %+v, %v", rec, err)
			}
			check(t, s, "a", files)
			check(t, open(t, dir, blobs, option), "a", files)
			other := open(t, t.TempDir(), blobs, option)
			check(t, other, "a", files)
			if list, err := other.List(t.Context()); err != nil || len(list) != 1 || string(list[0].Data) != `{"of":"a"}` {
				t.Errorf("another host lists %+v, %v", list, err)
			}
			src, err := s.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if len(src.Files) != 4 || src.Files["state"] != nil {
				t.Errorf("%d files are served", len(src.Files))
			}
		})
	}
}

// TestEncryptedStoreTellsNothing looks for the content in what is stored.
func TestEncryptedStoreTellsNothing(t *testing.T) {
	t.Parallel()
	blobs := blob.NewMemory()
	s := open(t, t.TempDir(), blobs, withKey)
	secret := noise(1, pageSize*4)
	keep(t, s, "a", map[string][]byte{"f": slices.Concat(secret, []byte("a secret"))})
	pack(t, s, "a")
	plain := &keys{}
	for _, key := range keysOf(t, blobs, "") {
		data, err := s.readObject(t.Context(), key, maxManifest)
		if err != nil {
			t.Fatal(err)
		}
		id := plain.id(secret)
		for _, known := range [][]byte{secret[:32], []byte("a secret"), []byte(`"of"`), id[:]} {
			if bytes.Contains(data, known) {
				t.Errorf("%s holds %q", key, known)
			}
		}
	}
	_, err := open(t, t.TempDir(), blobs).Open(t.Context(), "a")
	wantCode(t, err, api.CodeSnapshotCorrupt)
	_, err = open(t, t.TempDir(), blobs, func(c *Config) { c.Key = bytes.Repeat([]byte{8}, keySize) }).Open(t.Context(), "a")
	wantCode(t, err, api.CodeSnapshotCorrupt)
	if _, err := Open(t.Context(), Config{Dir: t.TempDir(), Key: []byte("short")}); err == nil {
		t.Error("a short key is taken")
	}
}

// TestChildStoresWhatItChanged packs a child that differs from its parent.
func TestChildStoresWhatItChanged(t *testing.T) {
	t.Parallel()
	blobs := blob.NewMemory()
	s := open(t, t.TempDir(), blobs)
	parent := noise(1, 64<<20)
	keep(t, s, "parent", map[string][]byte{"pages": parent})
	whole := pack(t, s, "parent")

	child := slices.Clone(parent)
	copy(child[20<<20+5000:], noise(2, 3<<20))
	keep(t, s, "child", map[string][]byte{"pages": child})
	p := pack(t, s, "child")
	if p.StoredBytes > 4<<20 || p.SharedBytes < 60<<20 {
		t.Errorf("a child that changed 3 MB: %+v", p)
	}

	moved := append(noise(3, pageSize), parent...)
	keep(t, s, "moved", map[string][]byte{"other": moved})
	if p = pack(t, s, "moved"); p.StoredBytes > 1<<20 {
		t.Errorf("all pages moved by one: %+v", p)
	}

	scattered := slices.Clone(parent)
	r := rand.New(rand.NewPCG(1, 2))
	for range 768 {
		scattered[r.IntN(len(scattered))] ^= 1
	}
	keep(t, s, "scattered", map[string][]byte{"pages": scattered})
	p = pack(t, s, "scattered")
	t.Logf("parent stores %d bytes; a child with 768 single pages (3 MB) changed stores %d", whole.StoredBytes, p.StoredBytes)
	evictAll(t, s)
	check(t, open(t, t.TempDir(), blobs), "moved", map[string][]byte{"other": moved})
	check(t, s, "child", map[string][]byte{"pages": child})
}

func TestSharingAcrossHosts(t *testing.T) {
	t.Parallel()
	blobs := blob.NewMemory()
	files := map[string][]byte{"pages": noise(1, 8<<20)}
	first, second := open(t, t.TempDir(), blobs), open(t, t.TempDir(), blobs)
	keep(t, first, "a", files)
	pack(t, first, "a")
	keep(t, second, "b", files)
	if p := pack(t, second, "b"); p.StoredBytes != 0 || p.SharedBytes != 8<<20 {
		t.Errorf("the second host packs %+v", p)
	}
}

func TestManifestSize(t *testing.T) {
	t.Parallel()
	data := noise(1, 16<<20)
	m := manifest{meta: meta{Version: metaVersion, Info: Info{ID: "a"}, Files: []file{{"pages", 256 << 20}}}, packs: make([]packID, 5)}
	var runs []run
	for i := range 16 {
		for _, p := range cut(t, data) {
			runs = append(runs, run{size: int64(len(p.data)), chunk: (&keys{}).id(p.data), place: place{uint32(i / 4), packLimit - 1, maxChunk, true}})
		}
	}
	m.files = [][]run{runs}
	out, err := m.encode(&keys{}, "a.0")
	if err != nil || len(out) > 1<<20 {
		t.Errorf("the manifest of 256 MB has %d bytes, %v", len(out), err)
	}
	t.Logf("the manifest of 256 MB has %d bytes", len(out))
	got, err := decodeManifest(out, &keys{}, "a.0")
	if err != nil || !slices.Equal(got.files[0], runs) {
		t.Errorf("the manifest is not read back: %v", err)
	}
}

// TestPackFails lets the blob store be away and full: the raw form stays, and
// packing works when the store does.
func TestPackFails(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory()}
	s := open(t, t.TempDir(), w)
	files := map[string][]byte{"f": noise(1, 1<<20)}
	keep(t, s, "a", files)
	w.away.Store(true)
	_, err := s.Pack(t.Context(), "a")
	wantCode(t, err, api.CodeSnapshotStore)
	_, err = s.Open(t.Context(), "elsewhere")
	wantCode(t, err, api.CodeSnapshotStore)
	w.away.Store(false)
	w.full.Store(true)
	_, err = s.Pack(t.Context(), "a")
	wantCode(t, err, api.CodeSnapshotStoreFull)
	check(t, s, "a", files)
	w.full.Store(false)
	pack(t, s, "a")
	evictAll(t, s)
	check(t, s, "a", files)
	_, err = s.Pack(t.Context(), "none")
	wantCode(t, err, api.CodeSnapshotNotFound)
	_, err = open(t, t.TempDir(), nil).Pack(t.Context(), "a")
	wantCode(t, err, api.CodeUnsupported)
}

// TestStartWithoutBlobStore starts a host while its blob store is away: raw
// snapshots are served, evicted ones wait for the store.
func TestStartWithoutBlobStore(t *testing.T) {
	t.Parallel()
	w := &watched{Store: blob.NewMemory()}
	dir := t.TempDir()
	s := open(t, dir, w)
	raw, packed := map[string][]byte{"f": []byte("raw")}, map[string][]byte{"f": noise(1, smallFile)}
	keep(t, s, "packed", packed)
	pack(t, s, "packed")
	evictAll(t, s)
	keep(t, s, "raw", raw)
	w.away.Store(true)
	s = open(t, dir, w)
	check(t, s, "raw", raw)
	if list, err := s.List(t.Context()); err != nil || !slices.Equal(ids(list), []string{"packed", "raw"}) {
		t.Errorf("it lists %v, %v", ids(list), err)
	}
	src, err := s.Open(t.Context(), "packed")
	if err == nil {
		_, err = read(src)
		src.Close()
	}
	wantCode(t, err, api.CodeSnapshotStore)
	w.away.Store(false)
	check(t, s, "packed", packed)
}

// TestLostPackedForm packs again what the blob store has lost, instead of
// evicting the only bytes there are.
func TestLostPackedForm(t *testing.T) {
	t.Parallel()
	blobs := blob.NewMemory()
	s := open(t, t.TempDir(), blobs)
	files := map[string][]byte{"f": noise(1, 1<<20)}
	keep(t, s, "a", files)
	pack(t, s, "a")
	for _, key := range keysOf(t, blobs, "") {
		if err := blobs.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	evictAll(t, s)
	if rec, err := s.Get(t.Context(), "a"); err != nil || !rec.Raw || rec.Packed {
		t.Errorf("the record is %+v, %v", rec, err)
	}
	if p := pack(t, s, "a"); p.StoredBytes == 0 {
		t.Errorf("packed again: %+v", p)
	}
	evictAll(t, s)
	check(t, s, "a", files)
}

// TestDamagedBlobs harms each object in several ways. What needs it is corrupt;
// another snapshot is not.
func TestDamagedBlobs(t *testing.T) {
	t.Parallel()
	for _, option := range []func(*Config){func(*Config) {}, withKey} {
		blobs := blob.NewMemory()
		s := open(t, t.TempDir(), blobs, option)
		keep(t, s, "good", map[string][]byte{"f": noise(1, 1<<20)})
		pack(t, s, "good")
		good := keysOf(t, blobs, "")
		keep(t, s, "bad", map[string][]byte{"f": noise(2, 1<<20), "g": noise(3, smallFile), "h": []byte(strings.Repeat("text", 1e5))})
		pack(t, s, "bad")
		for _, key := range keysOf(t, blobs, "") {
			if slices.Contains(good, key) {
				continue
			}
			data, err := s.readObject(t.Context(), key, packLimit)
			if err != nil {
				t.Fatal(err)
			}
			for name, harm := range map[string]func() []byte{
				"a bit":   func() []byte { d := slices.Clone(data); d[len(d)/2] ^= 1; return d },
				"the end": func() []byte { d := slices.Clone(data); d[len(d)-1] ^= 1; return d },
				"cut off": func() []byte { return data[:len(data)/2] },
				"empty":   func() []byte { return nil },
				"gone":    nil,
			} {
				if harm == nil {
					err = blobs.Delete(t.Context(), key)
				} else {
					d := harm()
					err = blobs.Put(t.Context(), key, bytes.NewReader(d), int64(len(d)))
				}
				if err != nil {
					t.Fatal(err)
				}
				other := open(t, t.TempDir(), blobs, option)
				src, err := other.Open(t.Context(), "bad")
				if err == nil {
					_, err = read(src)
					src.Close()
				}
				if code := api.CodeOf(err); code != api.CodeSnapshotCorrupt && !(name == "gone" && code == api.CodeSnapshotNotFound) {
					t.Errorf("%s of %s: %v", name, key, err)
				}
				check(t, other, "good", map[string][]byte{"f": noise(1, 1<<20)})
				keep(t, other, "new", map[string][]byte{"f": noise(1, 1<<20)})
				pack(t, other, "new")
				if err := errors.Join(other.Delete(t.Context(), "new"), other.cfg.Blobs.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestPackGivesUp ends a pack that outlasts half of Grace.
func TestPackGivesUp(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), blob.NewMemory(), withGrace(time.Second))
	keep(t, s, "a", map[string][]byte{"f": noise(1, 4<<20)})
	_, err := s.packAt(t.Context(), "a", func(time.Duration) error { time.Sleep(400 * time.Millisecond); return nil })
	if !errors.Is(err, errSlow) {
		t.Errorf("the error is %v", err)
	}
	if got := keysOf(t, s.cfg.Blobs, "snapshots/manifests/"); len(got) != 0 {
		t.Errorf("there is a manifest: %v", got)
	}
}

// TestManyPacks fills more than one pack.
func TestManyPacks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it packs 130 MB")
	}
	blobs := blob.NewMemory()
	s := open(t, t.TempDir(), blobs)
	files := map[string][]byte{}
	for i := range 5 {
		files[fmt.Sprint("f", i)] = noise(byte(i), 26<<20)
	}
	keep(t, s, "a", files)
	pack(t, s, "a")
	if n := len(keysOf(t, blobs, "snapshots/packs/")); n != 3 {
		t.Errorf("there are %d packs", n)
	}
	evictAll(t, s)
	check(t, s, "a", files)
}
