package snapshot

import (
	"bytes"
	"io"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// FuzzManifest reads manifests whose digest is right and whose content is anybody's.
func FuzzManifest(f *testing.F) {
	k := &keys{}
	m := manifest{
		meta:  meta{Version: metaVersion, Info: Info{ID: "a"}, Files: []file{{"f", 5*pageSize + 7}, {"g", pageSize}}},
		packs: make([]packID, 2),
		files: [][]run{
			{{size: 4 * pageSize, chunk: chunkID{1}, place: place{1, 5, 6, true}}, {size: pageSize + 7, zeros: true}},
			{{size: pageSize, chunk: chunkID{2}, place: place{0, 0, 9, false}}},
		},
	}
	data, err := m.encode(k, "a.0")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:len(data)-32])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		id := k.id(data)
		m, err := decodeManifest(append(data[:len(data):len(data)], id[:]...), k, "a.0")
		if err != nil {
			return
		}
		for i, runs := range m.files {
			var size int64
			for _, r := range runs {
				size += r.size
				if !r.zeros && int(r.place.pack) >= len(m.packs) {
					t.Errorf("a run is in pack %d of %d", r.place.pack, len(m.packs))
				}
			}
			if size != m.meta.Files[i].Size {
				t.Errorf("the runs of file %d have %d bytes of %d", i, size, m.meta.Files[i].Size)
			}
		}
		again, err := m.encode(k, "a.0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(again, k, "a.0"); err != nil {
			t.Errorf("written again, it cannot be read: %v", err)
		}
	})
}

// FuzzImport reads files that anybody made. Whatever is kept can be opened.
func FuzzImport(f *testing.F) {
	f.Add(exported(f, map[string][]byte{"f": slicesOf(noise(1, 100), make([]byte, 2*pageSize), []byte("x")), "g": nil}, attachment("image", []byte("image"))))
	f.Add(exported(f, map[string][]byte{"text": bytes.Repeat([]byte("text"), 2000)}))
	f.Add([]byte("pandasnp\x01\x00\x00\x00\x02{}"))
	s := open(f, f.TempDir(), nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := s.Import(t.Context(), "b", bytes.NewReader(data), func(_ string, size int64, content io.Reader) error {
			n, err := io.Copy(io.Discard, io.LimitReader(content, 64<<20))
			if n > size {
				t.Errorf("an attachment of %d bytes gives %d", size, n)
			}
			return err
		}, nil)
		if api.CodeOf(err) == api.CodeSnapshotExists {
			t.Fatal(err)
		}
		if err == nil {
			src, err := s.Open(t.Context(), "b")
			if err != nil {
				t.Fatal(err)
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
			if err := s.Delete(t.Context(), "b"); err != nil {
				t.Error(err)
			}
		}
		if got := filesIn(t, s, stagingDir); len(got) != 0 {
			t.Errorf("staging has %v", got)
		}
	})
}
