package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"testing"
)

// cut gives the pieces of data, with copies of their content.
func cut(t testing.TB, data []byte) []piece {
	t.Helper()
	c := newCutter(bytes.NewReader(data), int64(len(data)))
	var out []piece
	for {
		p, err := c.next()
		if err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, piece{p.zeros, bytes.Clone(p.data)})
	}
}

func TestCutGivesTheFileBack(t *testing.T) {
	t.Parallel()
	zeros := make([]byte, 3<<20)
	for name, data := range map[string][]byte{
		"nothing": nil, "one byte": {1}, "one zero": {0}, "a page": noise(1, pageSize), "a page and a byte": noise(1, pageSize+1),
		"memory": memory(1, 5<<20), "noise": noise(1, 3<<20+17), "zeros": zeros, "zeros and a byte": append(slices.Clone(zeros), 1),
		"a byte and zeros": append([]byte{1}, zeros...), "the same page": bytes.Repeat(noise(3, pageSize), 1000),
	} {
		var got []byte
		pieces := cut(t, data)
		for i, p := range pieces {
			if p.zeros > 0 && (len(p.data) > 0 || i > 0 && pieces[i-1].zeros > 0) {
				t.Errorf("%s: piece %d is zeros and more, or follows zeros", name, i)
			}
			if n := len(p.data); n > maxChunk || n%pageSize != 0 && i != len(pieces)-1 {
				t.Errorf("%s: piece %d has %d bytes", name, i, n)
			}
			for at := 0; at < len(p.data); at += pageSize {
				if page := p.data[at:min(len(p.data), at+pageSize)]; isZero(page) {
					t.Errorf("%s: piece %d has a page of zeros", name, i)
				}
			}
			got = append(append(got, make([]byte, p.zeros)...), p.data...)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: the pieces are not the file", name)
		}
	}
}

func TestCutFailsOnShortFile(t *testing.T) {
	t.Parallel()
	c := newCutter(bytes.NewReader(noise(1, 5<<20)), 6<<20)
	var err error
	for err == nil {
		_, err = c.next()
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %v", err)
	}
}

// TestCutFollowsContent shifts a file by one page, and by many: nearly all chunks
// are the same.
func TestCutFollowsContent(t *testing.T) {
	t.Parallel()
	data := noise(1, 16<<20)
	have := map[[32]byte]bool{}
	var count int
	for _, p := range cut(t, data) {
		have[sha256.Sum256(p.data)] = true
		count++
	}
	if mean := len(data) / pageSize / count; mean < 12 || mean > 20 {
		t.Errorf("a chunk has %d pages on average, want about 16", mean)
	}
	for _, pages := range []int{1, 3, 777} {
		var fresh int
		for _, p := range cut(t, append(noise(2, pages*pageSize), data...)) {
			if !have[sha256.Sum256(p.data)] {
				fresh += len(p.data)
			}
		}
		if limit := pages*pageSize + 1<<20; fresh > limit {
			t.Errorf("shifted by %d pages, %d bytes are not shared, want at most %d", pages, fresh, limit)
		}
	}
}
