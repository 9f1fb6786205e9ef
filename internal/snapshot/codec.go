package snapshot

import (
	"errors"

	"github.com/klauspost/compress/zstd"
)

// maxPiece bounds what is compressed at once, and so what decompressing may give.
const maxPiece = 1 << 20

// codec compresses pieces, each for itself.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(maxPiece))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPiece),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	return &codec{enc, dec}, nil
}

// squeeze gives data compressed in the room of buf, or data itself where that is
// not smaller.
func (c *codec) squeeze(buf, data []byte) (out []byte, squeezed bool) {
	out = c.enc.EncodeAll(data, buf[:0])
	if len(out) >= len(data) {
		return data, false
	}
	return out, true
}

var errExpand = errors.New("it does not decompress to its size")

// expand gives the size bytes that squeeze compressed, and never more.
func (c *codec) expand(data []byte, size int) ([]byte, error) {
	out, err := c.dec.DecodeAll(data, make([]byte, 0, size))
	if err != nil || len(out) != size {
		return nil, errExpand
	}
	return out, nil
}
