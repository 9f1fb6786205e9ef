package mcp

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEnds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, keepOutput, keepOutput + 1, 2 * keepOutput} {
		var e ends
		text := strings.Repeat("a", n)
		for i := 0; i < n; i += 1000 {
			e.Write([]byte(text[i:min(n, i+1000)]))
		}
		if e.text() != text || e.omitted != 0 {
			t.Errorf("%d bytes: %d, %d omitted", n, len(e.text()), e.omitted)
		}
	}
	var e ends
	long := strings.Repeat("\u2603", 20_000) // neither end falls on a character
	e.Write([]byte(long))
	head, rest, _ := strings.Cut(e.text(), "\n[... ")
	_, tail, _ := strings.Cut(rest, " ...]\n")
	if !strings.HasPrefix(long, head) || !strings.HasSuffix(long, tail) || int64(len(long)) != int64(len(head)+len(tail))+e.omitted || len(head) < keepOutput-3 {
		t.Errorf("%d + %d + %d of %d bytes", len(head), e.omitted, len(tail), len(long))
	}
}

// FuzzPart: the parts of a file, put together, are the file.
func FuzzPart(f *testing.F) {
	f.Add([]byte("h\u00e9llo"), 2)
	f.Add([]byte("\xff\xfe\x00"), 1)
	f.Add([]byte("\x80\x80\x80\x80\x80"), 3)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit = min(max(limit, 1), maxText)
		var whole []byte
		for {
			left := data[len(whole):]
			p := part(left[:min(len(left), limit+1)], limit)
			got := []byte(p.Content)
			if p.Encoding == "base64" {
				got, _ = base64.StdEncoding.DecodeString(p.Content)
			} else if !utf8.Valid(got) {
				t.Fatalf("%q is not text", got)
			}
			if len(got) != p.Bytes || len(got) > limit {
				t.Fatalf("%d bytes, says %d of %d", len(got), p.Bytes, limit)
			}
			whole = append(whole, got...)
			if !p.Truncated {
				break
			}
			if len(got) == 0 {
				t.Fatal("no progress")
			}
		}
		if !bytes.Equal(whole, data) {
			t.Errorf("%q became %q", data, whole)
		}
	})
}
