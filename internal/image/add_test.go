package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestAddTakesInWhatItsDigestSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := NewStore(dir, slog.New(slog.DiscardHandler), WithLimits(Limits{Bytes: 1 << 20}))
	content := bytes.Repeat([]byte("image"), 1000)
	sum := sha256.Sum256(content)
	digest := digestPrefix + hex.EncodeToString(sum[:])
	ctx, size := t.Context(), int64(len(content))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	lost := errors.New("the connection is lost")
	for name, test := range map[string]struct {
		ctx     context.Context
		digest  string
		size    int64
		content io.Reader
		want    api.Code
	}{
		"short":        {ctx, digest, size, bytes.NewReader(content[1:]), api.CodeSnapshotCorrupt},
		"long":         {ctx, digest, size, bytes.NewReader(append(content, 'x')), api.CodeSnapshotCorrupt},
		"other":        {ctx, digest, size, bytes.NewReader(bytes.Repeat([]byte("other"), 1000)), api.CodeSnapshotCorrupt},
		"no digest":    {ctx, "base", size, bytes.NewReader(content), api.CodeTemplateInvalid},
		"empty":        {ctx, digest, 0, bytes.NewReader(nil), api.CodeTemplateInvalid},
		"too large":    {ctx, digest, 1<<20 + 1, bytes.NewReader(content), api.CodeTemplateInvalid},
		"failing read": {ctx, digest, size, io.MultiReader(bytes.NewReader(content[:7]), failing{lost}), api.CodeInternal},
		"cancelled":    {gone, digest, size, bytes.NewReader(content), api.CodeInternal},
	} {
		if _, err := s.Add(test.ctx, test.digest, test.size, test.content); err == nil || api.CodeOf(err) != test.want {
			t.Errorf("%s: error %v, want %s", name, err, test.want)
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*.erofs"))
	work, _ := os.ReadDir(filepath.Join(dir, "tmp"))
	if len(left) != 0 || len(work) != 0 {
		t.Errorf("images %v and work %v are left", left, work)
	}
	for range 2 { // the second time it is there
		img, err := s.Add(ctx, digest, size, bytes.NewReader(content))
		if err != nil || img.Digest != digest || img.Size != size {
			t.Fatalf("add: %+v, %v", img, err)
		}
	}
	if err := s.Verify(ctx, digest); err != nil {
		t.Error(err)
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
