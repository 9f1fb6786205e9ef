package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/internal/blob"
)

// A manifest says what each file of a snapshot consists of. Numbers are varints.
//
//	magic      8 bytes, with the version
//	sealed     1 byte
//	packs      count, then 16 bytes each: readable without the key, for collection
//	body       sealed if there is a key: length and JSON of meta, then for each
//	           file of it the number of its runs and the runs
//	digest     SHA-256 of all before
//
// A run is 2n for n bytes of zeros, or 2n+1 for a chunk of n bytes: its id, the
// position of its pack in packs, its offset there, and 2m or 2m+1 for m bytes
// stored as they are or compressed.
type manifest struct {
	meta  meta
	packs []packID
	files [][]run // by position in meta.Files
}

// run is a part of a file: zeros, or a chunk.
type run struct {
	size  int64
	zeros bool
	chunk chunkID
	place place
}

// place is where a chunk is stored.
type place struct {
	pack     uint32 // position in a table of packs
	off      uint32
	size     uint32 // stored
	squeezed bool
}

// packID names a pack. It is random, so it says nothing of the content.
type packID [16]byte

func (p packID) String() string { return hex.EncodeToString(p[:]) }

var manifestMagic = []byte("pandamf1")

// Bounds on manifests and packs.
const (
	maxManifest = 64 << 20
	packLimit   = 64 << 20
)

var errManifest = errors.New("its manifest is damaged")

// encode writes the manifest of the snapshot and generation called name.
func (m *manifest) encode(k *keys, name string) ([]byte, error) {
	head := slices.Clone(manifestMagic)
	head = append(head, boolByte(k.sealed()))
	head = binary.AppendUvarint(head, uint64(len(m.packs)))
	for _, p := range m.packs {
		head = append(head, p[:]...)
	}
	info, err := m.meta.encode()
	if err != nil {
		return nil, err
	}
	body := binary.AppendUvarint(nil, uint64(len(info)))
	body = append(body, info...)
	for _, runs := range m.files {
		body = binary.AppendUvarint(body, uint64(len(runs)))
		for _, r := range runs {
			body = r.append(body)
		}
	}
	out := k.seal(slices.Clone(head), body, append([]byte(name), head...))
	sum := sha256.Sum256(out)
	if out = append(out, sum[:]...); len(out) > maxManifest {
		return nil, fmt.Errorf("its manifest would have %d bytes, more than %d", len(out), maxManifest)
	}
	return out, nil
}

func (r run) append(b []byte) []byte {
	if r.zeros {
		return binary.AppendUvarint(b, uint64(r.size)<<1)
	}
	b = binary.AppendUvarint(b, uint64(r.size)<<1|1)
	b = append(b, r.chunk[:]...)
	b = binary.AppendUvarint(b, uint64(r.place.pack))
	b = binary.AppendUvarint(b, uint64(r.place.off))
	return binary.AppendUvarint(b, uint64(r.place.size)<<1|uint64(boolByte(r.place.squeezed)))
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// decodeHead checks the digest and gives the packs, and where the body is.
func decodeHead(data []byte) (packs []packID, head, body []byte, err error) {
	if len(data) > maxManifest || len(data) < len(manifestMagic)+1+sha256.Size || !bytes.HasPrefix(data, manifestMagic) {
		return nil, nil, nil, errManifest
	}
	end := len(data) - sha256.Size
	if sha256.Sum256(data[:end]) != chunkID(data[end:]) {
		return nil, nil, nil, errManifest
	}
	s := scanner{b: data[len(manifestMagic)+1 : end]}
	n := s.number(uint64(len(s.b) / len(packID{})))
	for range n {
		packs = append(packs, packID(s.take(len(packID{}))))
	}
	if s.bad {
		return nil, nil, nil, errManifest
	}
	at := end - len(s.b)
	return packs, data[:at], data[at:end], nil
}

// decodeManifest reads what encode wrote under the same name.
func decodeManifest(data []byte, k *keys, name string) (*manifest, error) {
	packs, head, body, err := decodeHead(data)
	if err != nil {
		return nil, err
	}
	if sealed := head[len(manifestMagic)] == 1; sealed != k.sealed() {
		if sealed {
			return nil, errors.New("its manifest is encrypted, and this host has no key")
		}
		return nil, errors.New("its manifest is not encrypted, and this host's are")
	}
	if body, err = k.open(body, append([]byte(name), head...)); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	m := &manifest{packs: packs}
	s := scanner{b: body}
	if err := json.Unmarshal(s.take(int(s.number(maxInfo))), &m.meta); err != nil || s.bad {
		return nil, errManifest
	}
	if err := m.meta.check(); err != nil {
		return nil, err
	}
	for _, f := range m.meta.Files {
		runs, ok := s.runs(f.Size, len(packs))
		if !ok {
			return nil, errManifest
		}
		m.files = append(m.files, runs)
	}
	if len(s.b) != 0 || m.meta.Info.ID != strings.Split(name, ".")[0] {
		return nil, errManifest
	}
	return m, nil
}

// scanner takes a manifest apart. After the first thing that does not fit, bad
// is set and everything is zero.
type scanner struct {
	b   []byte
	bad bool
}

func (s *scanner) number(limit uint64) uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 || v > limit || s.bad {
		s.b, s.bad = nil, true
		return 0
	}
	s.b = s.b[n:]
	return v
}

func (s *scanner) take(n int) []byte {
	if n > len(s.b) || s.bad {
		s.b, s.bad = nil, true
		return make([]byte, len(chunkID{})) // enough for every fixed size
	}
	out := s.b[:n]
	s.b = s.b[n:]
	return out
}

// runs reads the runs of a file of size bytes.
func (s *scanner) runs(size int64, packs int) ([]run, bool) {
	n := s.number(uint64(len(s.b)))
	out := make([]run, 0, n)
	for range n {
		r := s.run(packs)
		if s.bad || r.size <= 0 || r.size > size {
			return nil, false
		}
		size -= r.size
		out = append(out, r)
	}
	return out, size == 0
}

func (s *scanner) run(packs int) run {
	v := s.number(maxFileSize<<1 | 1)
	r := run{size: int64(v >> 1), zeros: v&1 == 0}
	if r.zeros {
		return r
	}
	r.chunk = chunkID(s.take(len(r.chunk)))
	r.place.pack = uint32(s.number(uint64(packs)))
	r.place.off = uint32(s.number(packLimit))
	stored := s.number((maxChunk+sealOverhead)<<1 | 1)
	r.place.size, r.place.squeezed = uint32(stored>>1), stored&1 == 1
	if r.size > maxChunk || int(r.place.pack) >= packs || r.place.size == 0 {
		s.bad = true
	}
	return r
}

// Keys of objects.
func (s *Store) manifestKey(id, gen string) string {
	return s.cfg.Prefix + "manifests/" + id + "." + gen
}
func (s *Store) packKey(p packID) string { return s.cfg.Prefix + "packs/" + p.String() }
func (s *Store) markKey(p packID) string { return s.cfg.Prefix + "gc/" + p.String() }

func (s *Store) splitManifestKey(key string) (id, gen string, ok bool) {
	name, ok := strings.CutPrefix(key, s.cfg.Prefix+"manifests/")
	if !ok {
		return "", "", false
	}
	return splitName(name)
}

// packOf reads the id of a pack from the key of it or of its mark.
func packOf(key string) (packID, bool) {
	var p packID
	b, err := hex.DecodeString(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil || len(b) != len(p) {
		return p, false
	}
	return packID(b), true
}

// fetchManifest reads a manifest, and gives its bytes as well. A missing one is
// blob.ErrNotFound.
func (s *Store) fetchManifest(ctx context.Context, id, gen string) (*manifest, []byte, error) {
	data, err := s.readObject(ctx, s.manifestKey(id, gen), maxManifest)
	if err != nil {
		return nil, nil, storeError(err, "read the manifest of snapshot %s", id)
	}
	m, err := decodeManifest(data, s.keys, id+"."+gen)
	if err != nil {
		return nil, nil, corrupt(id, "%w", err)
	}
	return m, data, nil
}

// readObject reads a small object whole.
func (s *Store) readObject(ctx context.Context, key string, limit int64) ([]byte, error) {
	r, err := s.cfg.Blobs.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, limit+1))
}

// missing reports whether err says that an object does not exist.
func missing(err error) bool { return errors.Is(err, blob.ErrNotFound) }
