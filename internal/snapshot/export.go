package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"
)

// An exported snapshot is one file, written and read from front to back. Numbers
// are big-endian.
//
//	magic      8 bytes, then 1 byte of version
//	header     4 bytes of length, then JSON of exportHeader
//	contents   of each attachment, then of each file: frames, a frame of kind
//	           frameEnd, then SHA-256 of the frames
//	digest     SHA-256 of all before
//
// A frame is its kind, one byte, and by kind
//
//	frameZeros     8 bytes: how many zeros
//	frameRaw       4 bytes: how many, then as many bytes
//	frameSqueezed  4 bytes: how many when decompressed, 4 bytes: how many, then these
var exportMagic = []byte("pandasnp")

const (
	exportVersion = 1
	maxHeader     = 4 << 20
)

// Kinds of frames.
const (
	frameEnd = iota
	frameZeros
	frameRaw
	frameSqueezed
)

type exportHeader struct {
	CreatedAt   time.Time       `json:"created_at"`
	Data        json.RawMessage `json:"data"`
	Attachments []file          `json:"attachments,omitempty"`
	Files       []file          `json:"files"`
}

// Export writes a snapshot and attachments as one file. The file is not encrypted,
// whether or not the blob store is.
func (s *Store) Export(ctx context.Context, id string, w io.Writer, with []Attachment) error {
	src, err := s.Open(ctx, id)
	if err != nil {
		return err
	}
	defer src.Close()
	h := exportHeader{CreatedAt: src.Record.CreatedAt, Data: src.Record.Data, Files: src.files}
	for _, a := range with {
		h.Attachments = append(h.Attachments, file{a.Name, a.Size})
	}
	x := s.newExporter(ctx, w)
	if err := x.header(h); err != nil {
		return fmt.Errorf("export snapshot %s: %w", id, err)
	}
	for _, a := range with {
		if err := x.attachment(a); err != nil {
			return fmt.Errorf("export snapshot %s: attachment %s: %w", id, a.Name, err)
		}
	}
	for _, f := range src.files {
		if err := x.file(src, f); err != nil {
			return fmt.Errorf("export snapshot %s: file %s: %w", id, f.Name, err)
		}
	}
	return x.end()
}

// exporter writes the parts of an exported file.
type exporter struct {
	ctx     context.Context
	codec   *codec
	out     *bufio.Writer
	all     hash.Hash // of everything
	part    hash.Hash // of the frames of one content
	pending []byte    // data of the next frame
	squeeze []byte
}

func (s *Store) newExporter(ctx context.Context, w io.Writer) *exporter {
	return &exporter{
		ctx: ctx, codec: s.codec, out: bufio.NewWriterSize(w, 1<<20), all: sha256.New(), part: sha256.New(),
		pending: make([]byte, 0, maxPiece),
	}
}

func (x *exporter) write(b []byte) error {
	x.all.Write(b)
	x.part.Write(b)
	_, err := x.out.Write(b)
	return err
}

func (x *exporter) header(h exportHeader) error {
	if err := h.check(); err != nil {
		return err
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	b := append(bytes.Clone(exportMagic), exportVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return x.write(append(b, data...))
}

// check refuses a header that no export would write.
func (h exportHeader) check() error {
	if err := checkFiles(h.Attachments); err != nil {
		return err
	}
	if len(h.Data) > maxInfo {
		return fmt.Errorf("its data has %d bytes, more than %d", len(h.Data), maxInfo)
	}
	return checkFiles(h.Files)
}

func (x *exporter) attachment(a Attachment) error {
	r, err := a.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	return x.content(r, a.Size)
}

func (x *exporter) file(src *Source, f file) error {
	if r, ok := src.Files[f.Name]; ok {
		return x.content(io.NewSectionReader(r, 0, f.Size), f.Size)
	}
	r, err := os.Open(filepath.Join(src.Dir, f.Name))
	if err != nil {
		return err
	}
	defer r.Close()
	return x.content(r, f.Size)
}

// content writes size bytes of r as frames.
func (x *exporter) content(r io.Reader, size int64) error {
	x.part.Reset()
	c := newCutter(r, size)
	for {
		p, err := c.next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if p.zeros > 0 || len(x.pending)+len(p.data) > maxPiece {
			if err := x.flush(); err != nil {
				return err
			}
		}
		if x.pending = append(x.pending, p.data...); p.zeros > 0 {
			if err := x.write(binary.BigEndian.AppendUint64([]byte{frameZeros}, uint64(p.zeros))); err != nil {
				return err
			}
		}
	}
	if err := x.flush(); err != nil {
		return err
	}
	if err := x.write([]byte{frameEnd}); err != nil {
		return err
	}
	return x.write(x.part.Sum(nil))
}

// flush writes what is pending as one frame.
func (x *exporter) flush() error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	n := uint32(len(x.pending))
	if n == 0 {
		return nil
	}
	out, squeezed := x.codec.squeeze(x.squeeze, x.pending)
	x.pending = x.pending[:0]
	head := binary.BigEndian.AppendUint32([]byte{frameRaw}, n)
	if squeezed {
		x.squeeze = out
		head[0] = frameSqueezed
		head = binary.BigEndian.AppendUint32(head, uint32(len(out)))
	}
	if err := x.write(head); err != nil {
		return err
	}
	return x.write(out)
}

func (x *exporter) end() error {
	if err := x.write(x.all.Sum(nil)); err != nil {
		return err
	}
	return x.out.Flush()
}
