package guest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestPieces(t *testing.T) {
	t.Parallel()
	data := make([]byte, 3<<20+17)
	rand.Read(data)
	for name, source := range map[string]func() io.Reader{
		"whole": func() io.Reader { return bytes.NewReader(data) },
		"half":  func() io.Reader { return iotest.HalfReader(bytes.NewReader(data)) },
		"early": func() io.Reader { return iotest.DataErrReader(bytes.NewReader(data)) },
	} {
		var out bytes.Buffer
		if n, err := newPieces(source()).WriteTo(&out); err != nil || n != int64(len(data)) || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s, written: %d bytes, %v", name, n, err)
		}
		if got, err := io.ReadAll(newPieces(source())); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s, read: %d bytes, %v", name, len(got), err)
		}
		p := newPieces(source())
		out.Reset()
		if n, err := p.writeTo(&out, 1<<20+1); err != nil || n != 1<<20+1 {
			t.Errorf("%s, limited: %d bytes, %v", name, n, err)
		}
		if _, err := io.Copy(&out, p); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s, the rest: %d bytes, %v", name, out.Len(), err)
		}
	}
	broken := errors.New("broken")
	if got, err := io.ReadAll(newPieces(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)))); err != broken || string(got) != "abc" {
		t.Errorf("a source that fails: %q, %v", got, err)
	}
}

// TestPiecesAtOnce: nothing waits for a buffer to fill, and stop ends a wait for a
// source that says nothing.
func TestPiecesAtOnce(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer w.Close()
	p := newPieces(r)
	go func() { _, _ = w.Write([]byte("a")) }() // the test fails below if it is not read
	b := make([]byte, 10)
	if n, err := p.Read(b); n != 1 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	why := errors.New("stopped")
	time.AfterFunc(10*time.Millisecond, func() { p.stop(why); p.Close() })
	if n, err := p.Read(b); n != 0 || err != why {
		t.Errorf("%d bytes, %v", n, err)
	}
}
