package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// errSlow ends a pack that took too long for the collector's rule.
var errSlow = api.Errorf(api.CodeSnapshotStore, "packing took too long and gave up")

// Pack brings a snapshot into the blob store now, if it is not there.
func (s *Store) Pack(ctx context.Context, id string) (Packing, error) {
	return s.packAt(ctx, id, func(time.Duration) error { return nil })
}

// packAt packs and calls pace now and then with the time that it worked.
func (s *Store) packAt(ctx context.Context, id string, pace func(time.Duration) error) (Packing, error) {
	if s.cfg.Blobs == nil {
		return Packing{}, api.Errorf(api.CodeUnsupported, "this host has no blob store to pack snapshots into")
	}
	if err := s.packing.take(ctx); err != nil {
		return Packing{}, err
	}
	defer s.packing.release()
	e, err := s.hold(ctx, id)
	if err != nil {
		return Packing{}, err
	}
	defer s.drop(e)
	s.mu.Lock()
	packed, done := e.packed, e.meta.Packing
	s.mu.Unlock()
	if packed {
		return done, nil
	}
	m, data, err := s.fetchManifest(ctx, id, e.gen)
	if missing(err) || api.CodeOf(err) == api.CodeSnapshotCorrupt {
		m, data, err = s.pack(ctx, e, pace)
	}
	if err == nil {
		err = s.notePacked(e, m, data)
	}
	if err != nil {
		return Packing{}, fmt.Errorf("pack snapshot %s: %w", id, err)
	}
	return m.meta.Packing, nil
}

// pack writes the packs, and last the manifest.
func (s *Store) pack(ctx context.Context, e *entry, pace func(time.Duration) error) (*manifest, []byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Grace/2, errSlow)
	defer cancel()
	p, err := s.newPacker(ctx, pace)
	if err != nil {
		return nil, nil, because(ctx, err)
	}
	defer p.close()
	s.mu.Lock()
	m := &manifest{meta: e.meta}
	s.mu.Unlock()
	for _, f := range m.meta.Files {
		runs, err := p.file(s.path(rawDir, e.name(), f.Name), f.Size)
		if err != nil {
			return nil, nil, because(ctx, err)
		}
		m.files = append(m.files, runs)
	}
	if err := p.flush(); err != nil {
		return nil, nil, because(ctx, err)
	}
	m.packs, m.meta.Packing = p.packs, p.done
	data, err := m.encode(s.keys, e.name())
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	gone := e.gone
	s.mu.Unlock()
	if gone {
		return nil, nil, notFound(e.id)
	}
	err = s.step("pack.manifest", func() error {
		return s.cfg.Blobs.Put(ctx, s.manifestKey(e.id, e.gen), bytes.NewReader(data), int64(len(data)))
	})
	if err != nil {
		return nil, nil, because(ctx, storeError(err, "write the manifest"))
	}
	if info, err := s.cfg.Blobs.Stat(ctx, s.manifestKey(e.id, e.gen)); err == nil {
		s.index.add(info, m.packs, m)
	}
	return m, data, nil
}

// notePacked writes down on this host that a snapshot is packed.
func (s *Store) notePacked(e *entry, m *manifest, manifest []byte) error {
	packed := &entry{id: e.id, gen: e.gen, meta: m.meta}
	if err := s.step("pack.note", func() error { return s.saveLocal(packed, manifest) }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.meta, e.packed = m.meta, true
	return nil
}

// saveLocal writes what this host must know of a packed snapshot. Its record
// comes last: without it the directory is nothing.
func (s *Store) saveLocal(e *entry, manifest []byte) error {
	dir := s.path(localDir, e.name())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return diskError(err)
	}
	if err := s.replaceFile(filepath.Join(dir, manifestFile), manifest, false); err != nil {
		return err
	}
	data, err := e.meta.encode()
	if err != nil {
		return err
	}
	if err := s.replaceFile(filepath.Join(dir, recordFile), data, true); err != nil {
		return err
	}
	return diskError(syncPath(s.path(localDir)))
}

// packer makes the packs of one snapshot.
type packer struct {
	s      *Store
	ctx    context.Context
	pace   func(time.Duration) error
	marked map[packID]bool // when packing began
	usable map[packID]bool // asked of the blob store since
	own    map[chunkID]run // chunks of this snapshot
	packs  []packID
	number map[packID]uint32
	done   Packing

	filling packID   // the pack that is being filled,
	content *os.File // so far
	size    int64
	squeeze []byte
	seal    []byte
}

// newPacker reads the marks before anything else. A pack that is marked later
// than this is not removed before this packer has finished or given up.
func (s *Store) newPacker(ctx context.Context, pace func(time.Duration) error) (*packer, error) {
	p := &packer{
		s: s, ctx: ctx, pace: pace, marked: map[packID]bool{}, usable: map[packID]bool{},
		own: map[chunkID]run{}, number: map[packID]uint32{},
	}
	err := s.cfg.Blobs.List(ctx, s.cfg.Prefix+"gc/", func(i blob.Info) error {
		if id, ok := packOf(i.Key); ok {
			p.marked[id] = true
		}
		return nil
	})
	if err != nil {
		return nil, storeError(err, "list the marks of packs")
	}
	if err := s.loadIndex(ctx); err != nil {
		return nil, err
	}
	if p.content, err = os.CreateTemp(s.path(tmpDir), "pack-*"); err != nil {
		return nil, diskError(err)
	}
	return p, os.Remove(p.content.Name())
}

func (p *packer) close() { p.content.Close() }

// because prefers the reason why a packer's time ended to what that led to.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSlow) {
		return errSlow
	}
	return err
}

// paceEvery is how much content is worked on between two calls of pace.
const paceEvery = 1 << 20

// file packs one file and gives its runs.
func (p *packer) file(path string, size int64) ([]run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil {
		return nil, err
	} else if fi.Size() != size {
		return nil, api.Errorf(api.CodeSnapshotCorrupt, "file %s has %d bytes, not %d", filepath.Base(path), fi.Size(), size)
	}
	var runs []run
	var worked int64
	began := time.Now()
	c := newCutter(f, size)
	for {
		next, err := c.next()
		if err == io.EOF {
			return runs, nil
		} else if err != nil {
			return nil, err
		}
		r, err := p.piece(next)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
		if worked += r.size; worked >= paceEvery {
			if err := errors.Join(p.ctx.Err(), p.pace(time.Since(began))); err != nil {
				return nil, err
			}
			worked, began = 0, time.Now()
		}
	}
}

func (p *packer) piece(next piece) (run, error) {
	if next.zeros > 0 {
		p.done.SizeBytes += next.zeros
		p.done.ZeroBytes += next.zeros
		return run{size: next.zeros, zeros: true}, nil
	}
	size := int64(len(next.data))
	p.done.SizeBytes += size
	id := p.s.keys.id(next.data)
	if r, ok := p.own[id]; ok {
		p.done.SharedBytes += size
		return r, nil
	}
	r := run{size: size, chunk: id}
	pack, at, ok := p.s.index.find(id)
	if ok {
		var err error
		if ok, err = p.canUse(pack); err != nil {
			return r, err
		}
	}
	if ok {
		r.place, p.done.SharedBytes = at, p.done.SharedBytes+size
		r.place.pack = p.numberOf(pack)
	} else if err := p.store(&r, next.data); err != nil {
		return r, err
	}
	p.own[id] = r
	return r, nil
}

// canUse reports whether chunks of a pack may be shared: it was not marked when
// packing began, and it exists. Asking in this order is what makes it safe.
func (p *packer) canUse(pack packID) (bool, error) {
	if ok, known := p.usable[pack]; known {
		return ok, nil
	}
	ok := !p.marked[pack]
	if ok {
		_, err := p.s.cfg.Blobs.Stat(p.ctx, p.s.packKey(pack))
		if err != nil && !missing(err) {
			return false, storeError(err, "look for pack %s", pack)
		}
		ok = err == nil
	}
	if !ok {
		p.s.index.bury([]packID{pack})
	}
	p.usable[pack] = ok
	return ok, nil
}

func (p *packer) numberOf(pack packID) uint32 {
	n, ok := p.number[pack]
	if !ok {
		n = uint32(len(p.packs))
		p.packs = append(p.packs, pack)
		p.number[pack] = n
	}
	return n
}

// store adds a chunk to the pack that is being filled.
func (p *packer) store(r *run, data []byte) error {
	out, squeezed := p.s.codec.squeeze(p.squeeze, data)
	if squeezed {
		p.squeeze = out
	}
	p.seal = p.s.keys.seal(p.seal[:0], out, r.chunk[:])
	if p.size+int64(len(p.seal)) > packLimit {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if p.size == 0 {
		var id packID
		rand.Read(id[:])
		p.numberOf(id)
		p.filling = id
	}
	if _, err := p.content.WriteAt(p.seal, p.size); err != nil {
		return diskError(err)
	}
	r.place = place{pack: p.number[p.filling], off: uint32(p.size), size: uint32(len(p.seal)), squeezed: squeezed}
	p.size += int64(len(p.seal))
	return nil
}

// flush stores the pack that is being filled.
func (p *packer) flush() error {
	if p.size == 0 {
		return nil
	}
	err := p.s.step("pack.pack", func() error {
		return p.s.cfg.Blobs.Put(p.ctx, p.s.packKey(p.filling), io.NewSectionReader(p.content, 0, p.size), p.size)
	})
	if err != nil {
		return storeError(err, "write a pack")
	}
	p.done.StoredBytes += p.size
	p.size = 0
	return p.content.Truncate(0)
}
