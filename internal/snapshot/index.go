package snapshot

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// maxIndexed bounds the index: about 60 bytes of memory for each chunk, so 256 MB
// at most, for about 256 GB of content. Chunks beyond it are stored again when
// they come again; nothing else changes.
const maxIndexed = 4 << 20

// index knows what the blob store holds: which packs each manifest needs, and
// where chunks are that a new snapshot can share. It is read from the manifests
// at the first pack or collection; each collection brings it up to date with
// what other hosts did. What it says of a pack is a hint: see packer.usable.
type index struct {
	mu        sync.Mutex
	loaded    bool
	manifests map[string]indexed // by key
	packs     []packID
	numbers   map[packID]uint32 // positions in packs
	dead      map[packID]bool   // marked or removed: never shared again
	chunks    map[chunkID]place
}

// indexed is a manifest that the index has read.
type indexed struct {
	modified time.Time
	size     int64
	packs    []packID
}

func newIndex() *index {
	return &index{
		manifests: map[string]indexed{}, numbers: map[packID]uint32{},
		dead: map[packID]bool{}, chunks: map[chunkID]place{},
	}
}

// find gives the place of a chunk and its pack.
func (x *index) find(id chunkID) (packID, place, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, ok := x.chunks[id]
	if !ok || x.dead[x.packs[p.pack]] {
		return packID{}, place{}, false
	}
	return x.packs[p.pack], p, true
}

// add takes up a manifest; m is nil where only its packs can be read.
func (x *index) add(info blob.Info, packs []packID, m *manifest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.manifests[info.Key] = indexed{info.Modified, info.Size, packs}
	if m == nil {
		return
	}
	for _, runs := range m.files {
		for _, r := range runs {
			if r.zeros || len(x.chunks) >= maxIndexed {
				continue
			}
			if old, ok := x.chunks[r.chunk]; ok && !x.dead[x.packs[old.pack]] {
				continue
			}
			r.place.pack = x.number(packs[r.place.pack])
			x.chunks[r.chunk] = r.place
		}
	}
}

func (x *index) number(p packID) uint32 {
	n, ok := x.numbers[p]
	if !ok {
		n = uint32(len(x.packs))
		x.packs = append(x.packs, p)
		x.numbers[p] = n
	}
	return n
}

// bury drops packs that may not be shared any more.
func (x *index) bury(packs []packID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	news := false
	for _, p := range packs {
		if !x.dead[p] {
			x.dead[p] = true
			_, known := x.numbers[p]
			news = news || known
		}
	}
	if news {
		maps.DeleteFunc(x.chunks, func(_ chunkID, p place) bool { return x.dead[x.packs[p.pack]] })
	}
}

// refresh reads the manifests that came since the last time, youngest first, and
// forgets those that went. It gives all there are, and what is wrong with those
// that are damaged: nobody can say what they need.
func (s *Store) refresh(ctx context.Context) (all map[string]indexed, damage, err error) {
	x := s.index
	here := map[string]bool{}
	var news []blob.Info
	err = s.cfg.Blobs.List(ctx, s.cfg.Prefix+"manifests/", func(i blob.Info) error {
		if _, _, ok := s.splitManifestKey(i.Key); !ok {
			return nil
		}
		here[i.Key] = true
		x.mu.Lock()
		old, ok := x.manifests[i.Key]
		x.mu.Unlock()
		if !ok || old.size != i.Size || !old.modified.Equal(i.Modified) {
			news = append(news, i)
		}
		return nil
	})
	if err != nil {
		return nil, nil, storeError(err, "list the manifests")
	}
	slices.SortFunc(news, func(a, b blob.Info) int { return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Key, b.Key)) })
	for _, i := range news {
		switch err := s.learn(ctx, i); {
		case missing(err):
			delete(here, i.Key)
		case api.CodeOf(err) == api.CodeSnapshotCorrupt:
			damage = errors.Join(damage, err)
		case err != nil:
			return nil, nil, err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loaded = true
	maps.DeleteFunc(x.manifests, func(key string, _ indexed) bool { return !here[key] })
	return maps.Clone(x.manifests), damage, nil
}

// learn reads a manifest into the index. One that is sealed with another key
// still says what it needs.
func (s *Store) learn(ctx context.Context, i blob.Info) error {
	id, gen, _ := s.splitManifestKey(i.Key)
	data, err := s.readObject(ctx, i.Key, maxManifest)
	if err != nil {
		return storeError(err, "read the manifest of snapshot %s", id)
	}
	packs, _, _, err := decodeHead(data)
	if err != nil {
		return corrupt(id, "%w", err)
	}
	m, err := decodeManifest(data, s.keys, id+"."+gen)
	if err != nil {
		s.cfg.Log.Warn("a manifest in the blob store cannot be read by this host", "snapshot", id, "err", err)
		m = nil
	}
	s.index.add(i, packs, m)
	return nil
}

// loadIndex reads the manifests unless that was done. A damaged one only means
// that its chunks are not shared.
func (s *Store) loadIndex(ctx context.Context) error {
	s.index.mu.Lock()
	loaded := s.index.loaded
	s.index.mu.Unlock()
	if loaded {
		return nil
	}
	_, _, err := s.refresh(ctx)
	return err
}
