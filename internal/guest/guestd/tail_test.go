//go:build linux

package guestd

import (
	"bytes"
	"testing"
)

// FuzzTail compares a tail with all that was written to it: it has the end of it,
// each byte with its stream, and knows how much is gone.
func FuzzTail(f *testing.F) {
	f.Add([]byte{1, 200, 7, 3, 255, 255, 0, 9}, true)
	f.Add(bytes.Repeat([]byte{1, 255}, 500), true)
	f.Add(bytes.Repeat([]byte{3, 100}, 500), false)
	f.Add(bytes.Repeat([]byte{0, 0, 1, 0}, 3000), true)
	f.Add(append(bytes.Repeat([]byte{131, 255}, 40), bytes.Repeat([]byte{3, 255}, 40)...), true)
	f.Fuzz(func(t *testing.T, script []byte, room bool) {
		var tl tail
		var all []byte
		var from []stream
		var next byte
		for i := 0; i+1 < len(script) && len(all) < 4<<20; i += 2 {
			s := stream(script[i] % 2)
			n := 1 + int(script[i+1])<<(script[i]%8)
			data := make([]byte, n)
			for j := range data {
				data[j] = next
				next++
				from = append(from, s)
			}
			all = append(all, data...)
			// Memory that was refused may be there later.
			tl.add(s, data, func(int) bool { return room == (script[i] < 128) })
		}
		b := tl.copy()
		if len(b.data) > tailBytes || b.lost+int64(len(b.data)) != int64(len(all)) || !bytes.HasSuffix(all, b.data) {
			t.Fatalf("%d bytes kept, %d lost, of %d", len(b.data), b.lost, len(all))
		}
		if least := min(len(all), tailFirst); len(tl.spans) < tailSpans-1 && len(b.data) < least {
			t.Fatalf("only %d bytes kept of %d", len(b.data), len(all))
		}
		at := len(all) - len(b.data)
		for _, sp := range b.spans {
			for range sp.n {
				if from[at] != sp.from {
					t.Fatalf("byte %d is of another stream", at)
				}
				at++
			}
		}
		if at != len(all) {
			t.Fatalf("the spans end at %d of %d", at, len(all))
		}
	})
}

// TestTailOfTerminal: a scrollback whose beginning is gone starts with a line.
func TestTailOfTerminal(t *testing.T) {
	t.Parallel()
	var tl tail
	line := []byte("\x1b[31mred\x1b[0m line\r\n")
	for range 20000 {
		tl.add(streamPTY, line, func(int) bool { return true })
	}
	b := tl.copy()
	if !bytes.HasPrefix(b.data, line) || len(b.data)%len(line) != 0 || b.spans[0].n != len(b.data) || b.lost+int64(len(b.data)) != int64(20000*len(line)) {
		t.Errorf("%d bytes that begin with %q", len(b.data), b.data[:20])
	}
}
