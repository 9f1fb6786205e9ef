//go:build linux

package guestd

import (
	"slices"
	"strings"
	"testing"
)

const socketTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 77 1 0 100 0 0 10 0
   1: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 78 1 0 100 0 0 10 0
   2: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 79 1 0 100 0 0 10 0
   3: 0200C80A:1F42 0100C80A:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 80 1 0 100 0 0 10 0
   4: 00000000:C33F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 81 1 0 100 0 0 10 0
   5: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 82
   6: 00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 83
   7: 0000000000000000FFFF00000100007F:0BBA 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 84
   8: 0200C80A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 85 1 0 100 0 0 10 0
`

func TestListeners(t *testing.T) {
	t.Parallel()
	want := []socket{{8000, "77"}, {3000, "82"}, {80, "85"}}
	if got := listeners(strings.NewReader(socketTable)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if stateOf(want) == stateOf(want[:2]) || stateOf(nil) != stateOf([]socket{}) {
		t.Error("a state does not name the set")
	}
}

func FuzzListeners(f *testing.F) {
	f.Add(socketTable)
	f.Add(strings.Repeat("x", 10<<10))
	f.Add("0: :1F40 x 0A a b c d e f\n0: 7F:1F40 x 0A a b c d e f")
	f.Fuzz(func(t *testing.T, table string) {
		seen := map[int]bool{}
		for _, s := range listeners(strings.NewReader(table)) {
			if s.port < 1 || s.port > 65535 || seen[s.port] {
				t.Fatal(s)
			}
			seen[s.port] = true
		}
	})
}
