package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Add takes in an image that another store made. Content of another size or with
// another digest is refused with snapshot.corrupt, and nothing of it stays. What
// is within the image is as untrusted as any: only a sandbox's kernel reads it.
func (s *Store) Add(ctx context.Context, digest string, size int64, content io.Reader) (Image, error) {
	hex, ok := parseDigest(digest)
	if !ok {
		return Image{}, invalid("%q is not an image digest (sha256: and 64 hex digits)", digest)
	}
	if size <= 0 || size > s.limits.Bytes {
		return Image{}, invalid("an image of %d bytes is not taken in; the limit is %d", size, s.limits.Bytes)
	}
	work, err := s.newScratch(ctx)
	if err != nil {
		return Image{}, err
	}
	img, err := s.addFile(ctx, work.image(), hex, size, content)
	return img, errors.Join(err, work.remove())
}

func (s *Store) addFile(ctx context.Context, path, hex string, size int64, content io.Reader) (Image, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Image{}, full(fmt.Errorf("add image: %w", err))
	}
	sum := sha256.New()
	from := io.TeeReader(&ctxReader{ctx, io.LimitReader(content, size+1)}, sum)
	n, err := io.CopyBuffer(f, from, make([]byte, 1<<20))
	if err = errors.Join(err, f.Close()); err != nil {
		return Image{}, full(fmt.Errorf("add image: %w", err))
	}
	if n != size || fmt.Sprintf("%x", sum.Sum(nil)) != hex {
		return Image{}, api.Errorf(api.CodeSnapshotCorrupt, "what was given as image %s%s is another one", digestPrefix, hex).
			WithHint("The file was damaged or cut short on its way; copy it again.")
	}
	img, err := s.commit(ctx, path, "imported", "")
	if err == nil && strings.TrimPrefix(img.Digest, digestPrefix) != hex {
		return Image{}, corrupt(hex, "it changed while it was taken in")
	}
	return img, err
}
