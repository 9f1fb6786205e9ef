package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// Defaults of Config.
const (
	defaultPrefix    = "snapshots/"
	defaultCache     = 10 << 30
	defaultPackAfter = 2 * time.Second
	defaultGrace     = time.Hour
)

// Store keeps snapshots in one directory of this host and, packed, in a blob
// store. Its directory belongs to one process at a time:
//
//	staging/<id>              a driver writes here; swept at Open
//	raw/<id>.<generation>     raw forms, each with its record
//	local/<id>.<generation>   of packed ones: the record, the manifest, small files
//	deleted/<id>.<generation> deleted, but perhaps still in the blob store
//	order/<id>.<generation>   what an earlier start read first
//	tmp/                      swept at Open
//
// Each Keep makes a generation, so that an id may be deleted and kept again while
// the bytes of its former life are still read or still wait for collection.
// Generations sort by time.
type Store struct {
	cfg   Config
	keys  *keys
	codec *codec
	cache *chunkCache
	index *index

	packing    lock          // one snapshot at a time
	collecting lock          // one collection at a time
	kept       chan struct{} // wakes Run

	mu      sync.Mutex
	snaps   map[string]*entry // by id
	keeping map[string]bool   // ids on their way into snaps
	deleted map[string]string // by id: the youngest generation of which a note is in deleted/
	dying   map[*entry]bool   // deleted, but open
}

var _ Keeper = (*Store)(nil)

// Open makes the store of a directory and finds what an earlier process kept
// there. It does not ask the blob store, so a host starts without it.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if n := len(cfg.Key); n != 0 && n != keySize {
		return nil, fmt.Errorf("the key of snapshots has %d bytes, not %d", n, keySize)
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, defaultPrefix)
	cfg.CacheBytes = cmp.Or(cfg.CacheBytes, defaultCache)
	cfg.PackAfter = cmp.Or(cfg.PackAfter, defaultPackAfter)
	cfg.Grace = cmp.Or(cfg.Grace, defaultGrace)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	k, err := newKeys(cfg.Key)
	if err != nil {
		return nil, err
	}
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, keys: k, codec: c, cache: newChunkCache(cacheLimit), index: newIndex(),
		packing: newLock(), collecting: newLock(), kept: make(chan struct{}, 1),
		snaps: map[string]*entry{}, keeping: map[string]bool{}, deleted: map[string]string{}, dying: map[*entry]bool{},
	}
	if err := s.load(ctx); err != nil {
		return nil, fmt.Errorf("open the snapshots in %s: %w", cfg.Dir, err)
	}
	return s, nil
}

// The folders of a store.
const (
	stagingDir = "staging"
	rawDir     = "raw"
	localDir   = "local"
	deletedDir = "deleted"
	orderDir   = "order"
	tmpDir     = "tmp"
)

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, parts...)...)
}

// load sweeps what is half-made and reads the rest.
func (s *Store) load(ctx context.Context) error {
	for _, dir := range []string{stagingDir, rawDir, localDir, deletedDir, orderDir, tmpDir} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return err
		}
	}
	for _, dir := range []string{stagingDir, tmpDir} {
		if err := removeContent(s.path(dir)); err != nil {
			return err
		}
	}
	if err := s.eachEntry(ctx, deletedDir, func(id, gen string) error {
		s.deleted[id] = max(s.deleted[id], gen)
		return nil
	}); err != nil {
		return err
	}
	if err := s.eachEntry(ctx, rawDir, s.loadRaw); err != nil {
		return err
	}
	if err := s.eachEntry(ctx, localDir, s.loadLocal); err != nil {
		return err
	}
	return s.eachEntry(ctx, orderDir, func(id, gen string) error {
		if e := s.snaps[id]; e == nil || e.gen != gen {
			return os.Remove(s.path(orderDir, id+"."+gen))
		}
		return nil
	})
}

// eachEntry calls each for what a folder has, oldest generation first. Other
// names are none of the store's and left alone.
func (s *Store) eachEntry(ctx context.Context, dir string, each func(id, gen string) error) error {
	list, err := os.ReadDir(s.path(dir))
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if id, gen, ok := splitName(e.Name()); ok {
			if err := each(id, gen); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadRaw takes up a raw form. One without a record was on its way out.
func (s *Store) loadRaw(id, gen string) error {
	dir := s.path(rawDir, id+"."+gen)
	r, err := readRecord(filepath.Join(dir, recordFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), gen <= s.deleted[id]:
		return s.removeTree(dir)
	case err != nil:
		s.cfg.Log.Error("a snapshot's record cannot be read; it is left alone", "snapshot", id, "err", err)
		return nil
	}
	if old := s.snaps[id]; old != nil {
		if err := s.removeTree(s.path(rawDir, old.name())); err != nil {
			return err
		}
	}
	bytes, used, err := measure(dir)
	if err != nil {
		return err
	}
	s.snaps[id] = &entry{id: id, gen: gen, meta: r, raw: true, rawBytes: bytes, used: used, kept: used, opening: newLock()}
	return nil
}

// loadLocal takes up what is known of a packed form. Files that were taken out
// of it are dropped: they were never synced, so nothing vouches for them now.
func (s *Store) loadLocal(id, gen string) error {
	dir := s.path(localDir, id+"."+gen)
	r, err := readRecord(filepath.Join(dir, recordFile))
	e := s.snaps[id]
	if err != nil || gen <= s.deleted[id] || e != nil && gen < e.gen {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Log.Error("a packed snapshot's record cannot be read; it is looked up again when it is asked for", "snapshot", id, "err", err)
		}
		return s.removeTree(dir)
	}
	if e == nil || e.gen != gen {
		e = &entry{id: id, gen: gen, opening: newLock()}
		s.snaps[id] = e
	}
	e.meta, e.packed = r, true
	return s.removeTree(filepath.Join(dir, filesDir))
}

// Get gives the record of a snapshot.
func (s *Store) Get(ctx context.Context, id string) (Record, error) {
	e, err := s.find(ctx, id)
	if err != nil {
		return Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.record(), nil
}

// List gives the snapshots that this host knows, oldest first: those it kept,
// and those it took from the blob store when they were asked for by id. Others
// that share the blob store are not listed.
func (s *Store) List(ctx context.Context) ([]Record, error) {
	s.mu.Lock()
	out := make([]Record, 0, len(s.snaps))
	for _, e := range s.snaps {
		out = append(out, e.record())
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out, ctx.Err()
}

// find gives the entry of an id, if need be from the blob store.
func (s *Store) find(ctx context.Context, id string) (*entry, error) {
	s.mu.Lock()
	e := s.snaps[id]
	s.mu.Unlock()
	switch {
	case e != nil:
		return e, nil
	case s.cfg.Blobs == nil || !validID(id):
		return nil, notFound(id)
	}
	return s.adopt(ctx, id)
}

// adopt takes up a snapshot that another host, or an earlier life of this one,
// has packed.
func (s *Store) adopt(ctx context.Context, id string) (*entry, error) {
	var gen string
	err := s.cfg.Blobs.List(ctx, s.manifestKey(id, ""), func(i blob.Info) error {
		if _, g, ok := s.splitManifestKey(i.Key); ok {
			gen = max(gen, g)
		}
		return nil
	})
	if err != nil {
		return nil, storeError(err, "look for snapshot %s", id)
	}
	s.mu.Lock()
	gone := gen <= s.deleted[id]
	s.mu.Unlock()
	if gen == "" || gone {
		return nil, notFound(id)
	}
	m, data, err := s.fetchManifest(ctx, id, gen)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, notFound(id)
	} else if err != nil {
		return nil, err
	}
	e := &entry{id: id, gen: gen, meta: m.meta, packed: true, opening: newLock()}
	if err := s.saveLocal(e, data); err != nil {
		return nil, err
	}
	known, err := s.enter(e)
	if err != nil {
		err = errors.Join(err, s.removeTree(s.path(localDir, e.name())))
	}
	return known, err
}

// enter makes an entry known unless another came first or a delete after.
func (s *Store) enter(e *entry) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.gen <= s.deleted[e.id] {
		return nil, notFound(e.id)
	}
	if other := s.snaps[e.id]; other != nil {
		return other, nil
	}
	s.snaps[e.id] = e
	return e, nil
}

func notFound(id string) error {
	return api.Errorf(api.CodeSnapshotNotFound, "there is no snapshot %q", id)
}

// Delete forgets a snapshot. The note that it is deleted comes first, so that no
// later step can bring it back; the collector takes the note away.
func (s *Store) Delete(ctx context.Context, id string) error {
	if !validID(id) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	e := s.snaps[id]
	gen := max(newGeneration(), s.deleted[id])
	s.mu.Unlock()
	if e == nil && s.cfg.Blobs == nil {
		return nil
	}
	if e != nil {
		gen = e.gen
	}
	err := s.step("delete.note", func() error { return s.noteDeleted(id, gen) })
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	s.mu.Lock()
	s.deleted[id] = max(s.deleted[id], gen)
	if e == nil || s.snaps[id] != e {
		s.mu.Unlock()
		return nil
	}
	delete(s.snaps, id)
	e.gone = true
	s.dying[e] = true
	last := e.refs == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.step("delete.remove", func() error { return s.remove(e) })
}

// noteDeleted makes an empty file whose name says what is deleted: everything of
// the id up to the generation.
func (s *Store) noteDeleted(id, gen string) error {
	f, err := os.OpenFile(s.path(deletedDir, id+"."+gen), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return diskError(err)
	}
	return diskError(errors.Join(f.Close(), syncPath(s.path(deletedDir))))
}

// remove takes the bytes of a deleted entry, which nobody has open, from this
// host. Without a blob store nothing else is left of it, and the note goes too.
func (s *Store) remove(e *entry) error {
	err := errors.Join(
		s.removeTree(s.path(rawDir, e.name())),
		s.removeTree(s.path(localDir, e.name())),
		removeFile(s.path(orderDir, e.name())),
	)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", e.id, err)
	}
	s.mu.Lock()
	delete(s.dying, e)
	s.mu.Unlock()
	if s.cfg.Blobs == nil {
		return s.forget(e.id, e.gen)
	}
	return nil
}

// forget takes away the note that a snapshot is deleted.
func (s *Store) forget(id, gen string) error {
	if err := removeFile(s.path(deletedDir, id+"."+gen)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted[id] == gen {
		delete(s.deleted, id)
	}
	return nil
}

// step does one durable step, with the points before and after it where tests
// let it fail or kill the process.
func (s *Store) step(name string, do func() error) error {
	if err := s.fault(name + ".before"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.fault(name + ".after")
}

func (s *Store) fault(point string) error {
	if s.cfg.Fault == nil {
		return nil
	}
	return s.cfg.Fault(point)
}

// splitName takes <id>.<generation> apart.
func splitName(name string) (id, gen string, ok bool) {
	id, gen, _ = strings.Cut(name, ".")
	return id, gen, validID(id) && validGeneration(gen)
}

// readRecord reads what Keep or Pack wrote beside a snapshot.
func readRecord(path string) (meta, error) {
	var m meta
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", path, err)
	}
	return m, m.check()
}
