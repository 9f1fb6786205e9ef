package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/api"
)

// Import reads what Export wrote and keeps it under id. Whatever the file holds,
// a failure leaves nothing of it.
func (s *Store) Import(ctx context.Context, id string, r io.Reader, attach func(name string, size int64, content io.Reader) error,
	adapt func(json.RawMessage) (json.RawMessage, error)) (Record, error) {
	if !validID(id) {
		return Record{}, api.Errorf(api.CodeInvalidRequest, "%q is no id of a snapshot", id)
	}
	s.mu.Lock()
	exists := s.snaps[id] != nil || s.keeping[id]
	s.mu.Unlock()
	stage := s.Stage(id)
	if err := os.Mkdir(stage, 0o700); exists || errors.Is(err, os.ErrExist) {
		if err == nil {
			s.Discard(id)
		}
		return Record{}, api.Errorf(api.CodeSnapshotExists, "snapshot %s exists", id)
	} else if err != nil {
		return Record{}, diskError(err)
	}
	rec, err := s.importTo(ctx, id, newImporter(ctx, s.codec, r), attach, adapt)
	if err != nil {
		return Record{}, errors.Join(fmt.Errorf("import snapshot %s: %w", id, err), s.Discard(id))
	}
	return rec, nil
}

func (s *Store) importTo(ctx context.Context, id string, m *importer, attach func(string, int64, io.Reader) error,
	adapt func(json.RawMessage) (json.RawMessage, error)) (Record, error) {
	h, err := m.header()
	if err != nil {
		return Record{}, err
	}
	for _, a := range h.Attachments {
		content := m.content(a.Size)
		if attach != nil {
			if err := attach(a.Name, a.Size, content); err != nil {
				return Record{}, fmt.Errorf("attachment %s: %w", a.Name, err)
			}
		}
		if err := content.drain(); err != nil {
			return Record{}, fmt.Errorf("attachment %s: %w", a.Name, err)
		}
	}
	for _, f := range h.Files {
		if err := m.file(filepath.Join(s.Stage(id), f.Name), f.Size); err != nil {
			return Record{}, fmt.Errorf("file %s: %w", f.Name, err)
		}
	}
	if err := m.end(); err != nil {
		return Record{}, err
	}
	info := Info{ID: id, CreatedAt: h.CreatedAt, Data: h.Data}
	if adapt != nil {
		if info.Data, err = adapt(h.Data); err != nil {
			return Record{}, err
		}
	}
	return s.Keep(ctx, info)
}

// importer reads the parts of an exported file.
type importer struct {
	ctx   context.Context
	codec *codec
	in    *bufio.Reader
	all   hash.Hash // of everything so far
	part  hash.Hash // of the frames of one content
	buf   []byte
}

func newImporter(ctx context.Context, c *codec, r io.Reader) *importer {
	return &importer{
		ctx: ctx, codec: c, in: bufio.NewReaderSize(r, 1<<20), all: sha256.New(), part: sha256.New(),
		buf: make([]byte, maxPiece),
	}
}

func damaged(format string, args ...any) error {
	return api.Errorf(api.CodeSnapshotCorrupt, "the file is damaged: "+format, args...)
}

// read fills b, and takes it into both digests.
func (m *importer) read(b []byte) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if _, err := io.ReadFull(m.in, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends too soon")
	} else if err != nil {
		return fmt.Errorf("read the file: %w", err)
	}
	m.all.Write(b)
	m.part.Write(b)
	return nil
}

func (m *importer) number() (int, error) {
	var b [4]byte
	err := m.read(b[:])
	return int(binary.BigEndian.Uint32(b[:])), err
}

// digest reads a digest and compares it with one that was computed.
func (m *importer) digest(want []byte) error {
	var b [sha256.Size]byte
	if err := m.read(b[:]); err != nil {
		return err
	}
	if !bytes.Equal(b[:], want) {
		return damaged("a digest does not match")
	}
	return nil
}

func (m *importer) header() (exportHeader, error) {
	var h exportHeader
	magic := make([]byte, len(exportMagic)+1)
	if err := m.read(magic); err != nil {
		return h, err
	}
	if !bytes.HasPrefix(magic, exportMagic) {
		return h, api.Errorf(api.CodeSnapshotCorrupt, "this is no file that a snapshot was exported to")
	}
	if v := magic[len(exportMagic)]; v != exportVersion {
		return h, api.Errorf(api.CodeSnapshotCorrupt, "the file has version %d of the format, which this server does not know", v).
			WithHint("Import it with a server of the version that exported it.")
	}
	n, err := m.number()
	if err != nil {
		return h, err
	}
	if n > maxHeader {
		return h, damaged("its header is too long")
	}
	data := make([]byte, n)
	if err := m.read(data); err != nil {
		return h, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, damaged("its header cannot be read")
	}
	if err := h.check(); err != nil {
		return h, damaged("%w", err)
	}
	return h, nil
}

// file writes a file of the snapshot; zeros become holes.
func (m *importer) file(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return diskError(err)
	}
	defer f.Close()
	c := m.content(size)
	var off int64
	for {
		fr, err := c.next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if _, err := f.WriteAt(fr.data, off); err != nil {
			return diskError(err)
		}
		off += fr.zeros + int64(len(fr.data))
	}
	return diskError(errors.Join(f.Truncate(size), f.Close()))
}

// end reads the last digest, behind which nothing may follow.
func (m *importer) end() error {
	if err := m.digest(m.all.Sum(nil)); err != nil {
		return err
	}
	if _, err := m.in.ReadByte(); err == nil {
		return damaged("something follows its end")
	} else if err != io.EOF {
		return fmt.Errorf("read the file: %w", err)
	}
	return nil
}

// content is one attachment or file. As an io.Reader it ends with io.EOF only
// when its size and its digest are right.
type content struct {
	m     *importer
	left  int64
	piece piece // what Read has not given yet
	err   error // what next ended with
}

func (m *importer) content(size int64) *content {
	m.part.Reset()
	return &content{m: m, left: size}
}

// next gives the next frame, valid until the next call, or io.EOF.
func (c *content) next() (piece, error) {
	if c.err != nil {
		return piece{}, c.err
	}
	var p piece
	p, c.err = c.frame()
	if n := p.zeros + int64(len(p.data)); c.err == nil {
		if n <= 0 || n > c.left {
			c.err = damaged("a file is longer than it says")
		}
		c.left -= n
	}
	return p, c.err
}

func (c *content) frame() (piece, error) {
	var kind [1]byte
	if err := c.m.read(kind[:]); err != nil {
		return piece{}, err
	}
	switch kind[0] {
	case frameEnd:
		if err := c.m.digest(c.m.part.Sum(nil)); err != nil {
			return piece{}, err
		}
		if c.left != 0 {
			return piece{}, damaged("a file is shorter than it says")
		}
		return piece{}, io.EOF
	case frameZeros:
		var b [8]byte
		err := c.m.read(b[:])
		return piece{zeros: int64(min(binary.BigEndian.Uint64(b[:]), maxSize+1))}, err
	case frameRaw, frameSqueezed:
		data, err := c.m.data(kind[0] == frameSqueezed)
		return piece{data: data}, err
	}
	return piece{}, damaged("a part of it is of no known kind")
}

// data reads the rest of a frame that holds data.
func (m *importer) data(squeezed bool) ([]byte, error) {
	size, err := m.number()
	if err != nil {
		return nil, err
	}
	stored := size
	if squeezed {
		if stored, err = m.number(); err != nil {
			return nil, err
		}
	}
	if size > maxPiece || stored > maxPiece {
		return nil, damaged("a part of it is too long")
	}
	buf := m.buf[:stored]
	if err := m.read(buf); err != nil || !squeezed {
		return buf, err
	}
	out, err := m.codec.expand(buf, size)
	if err != nil {
		return nil, damaged("%w", err)
	}
	return out, nil
}

// drain checks what nobody has read.
func (c *content) drain() error {
	for {
		if _, err := c.next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Read gives the content to those who take it as a stream.
func (c *content) Read(b []byte) (int, error) {
	if err := c.m.ctx.Err(); err != nil || len(b) == 0 {
		return 0, err
	}
	for c.piece.zeros == 0 && len(c.piece.data) == 0 {
		var err error
		if c.piece, err = c.next(); err != nil {
			c.piece = piece{}
			return 0, err
		}
	}
	if c.piece.zeros > 0 {
		n := int(min(int64(len(b)), c.piece.zeros))
		clear(b[:n])
		c.piece.zeros -= int64(n)
		return n, nil
	}
	n := copy(b, c.piece.data)
	c.piece.data = c.piece.data[n:]
	return n, nil
}
