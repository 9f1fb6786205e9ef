//go:build linux

package guestd

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

func FuzzDisposition(f *testing.F) {
	f.Add(`form-data; name="file"; filename="/home/user/a b.txt"`)
	f.Add(`form-data; name=file; filename*=UTF-8''%2Fa%00`)
	f.Fuzz(func(t *testing.T, s string) {
		if _, name := partName(s); name != "" {
			if p, err := resolvePath(name, "/home/user", ""); err == nil && (!filepath.IsAbs(p) || strings.ContainsRune(p, 0)) {
				t.Fatalf("%q", p)
			}
		}
	})
}

func FuzzResolvePath(f *testing.F) {
	for _, p := range []string{"", "~", "~/x", "~u", "/a/../b", "../..", "a\x00b", "a/./b"} {
		f.Add(p, "/home/user", "/w")
	}
	f.Fuzz(func(t *testing.T, path, home, workdir string) {
		got, err := resolvePath(path, home, workdir)
		if err == nil && (!filepath.IsAbs(got) || filepath.Clean(got) != got) {
			t.Fatalf("%q %q %q: %q", path, home, workdir, got)
		}
	})
}

func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n", "sudo:x:27:user\n")
	f.Fuzz(func(t *testing.T, passwd, groups string) {
		for name, u := range newAccounts(passwd, groups).byName {
			if name == "" || u.name != name || !strings.HasPrefix(u.home, "/") || len(u.groups) == 0 {
				t.Fatalf("%+v", u)
			}
		}
	})
}

func FuzzEncoding(f *testing.F) {
	f.Add("gzip;q=0.5, identity")
	f.Fuzz(func(t *testing.T, s string) {
		if e, ok := chooseEncoding(s); ok && e != "gzip" && e != "identity" {
			t.Fatal(e)
		}
	})
}

func TestResolvePath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "/work", "~": "/home/u", "~/a": "/home/u/a", "a/b": "/home/u/a/b", "/x/../y": "/y", "../z": "/home/z", ".": "/home/u",
	} {
		if got, err := resolvePath(in, "/home/u", "/work"); got != want || err != nil {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
	}
	if got, _ := resolvePath("", "/home/u", ""); got != "/home/u" {
		t.Error(got)
	}
	for _, bad := range []string{"~other", "a\x00", strings.Repeat("a", 4096)} {
		if _, err := resolvePath(bad, "/", ""); err == nil {
			t.Errorf("%.10q was resolved", bad)
		}
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	a := newAccounts("# c\nroot:x:0:0::/r:/bin/sh\nbad:x:y:0::/:\nuser:x:1000:1001::relative:\nuser:x:5:5::/:\n", "root:x:0:\nsudo:x:27:user,other\nmine:x:1001:\n")
	u := a.byName["user"]
	if u.uid != 1000 || u.home != "/" || !slices.Equal(u.groups, []uint32{1001, 27}) || len(a.byName) != 2 {
		t.Fatalf("%+v", a)
	}
	if a.owner(1000) != "user" || a.owner(7) != "7" || a.groupName(27) != "sudo" {
		t.Fatal("names of ids")
	}
	if newAccounts("", "").byName["root"].home != "/root" {
		t.Fatal("an image without passwd has no root")
	}
}

func TestEncodings(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "identity", "gzip": "gzip", "gzip, deflate, br": "gzip", "identity": "identity", "br": "", "*": "identity",
		"gzip;q=0": "", "gzip;q=0.1, identity": "identity", "br, *;q=0": "", "gzip;q=x": "",
	} {
		if got, ok := chooseEncoding(in); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", in, got, ok, want)
		}
	}
}

// The signature that a client of the protocol makes for path a, token tok.
func TestSignKnownAnswer(t *testing.T) {
	t.Parallel()
	if got := sign("a", "read", "", "tok", ""); got != "v1_54rCkEfEkZrpUtVWRlqL2nxBx/LpQ6ChNKYkiNC4s3g" {
		t.Fatal(got)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]bool{
		"127.0.0.1:5": false, "[::1]:5": false, "[::ffff:127.0.0.1]:5": false, "192.0.2.77:5": true, "": false, "@": false, "0.0.0.0:1": false,
	} {
		if got := fromOutside(remote); got != want {
			t.Errorf("%q: %v", remote, got)
		}
	}
}

func TestRing(t *testing.T) {
	t.Parallel()
	var r ring
	var got []string
	l := &lines{open: map[origin][]byte{}, keep: func(origin) bool { return true }, emit: func(x api.LogLine) { got = append(got, x.Line) }}
	a, b := origin{serial: 1, pid: 1}, origin{serial: 2, pid: 2}
	r.add(a, []byte("a1\na"), false)
	r.add(b, []byte("b1\n\nb2"), false)
	r.add(a, []byte("2\n"), false)
	r.add(b, nil, true)
	next, lost, wait := r.read(0, l.visit)
	if want := []string{"a1", "b1", "", "a2", "b2"}; !slices.Equal(got, want) || lost || wait != nil || next != 4 || len(l.open) != 0 {
		t.Fatalf("%q %d %v", got, next, lost)
	}
	if _, _, wait = r.read(next, l.visit); wait == nil {
		t.Fatal("nothing new and no wait")
	}
	for i := range 20_000 {
		r.add(a, fmt.Appendf(nil, "line %d %s\n", i, strings.Repeat("x", i%64)), false)
	}
	<-wait
	got = nil
	if _, lost, _ = r.read(next, l.visit); !lost || len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "line 19999 ") {
		t.Fatal(lost, len(got))
	}
	for i, line := range got {
		if want := fmt.Sprintf("line %d ", 20_000-len(got)+i); !strings.HasPrefix(line, want) {
			t.Fatalf("%q, want %q", line, want)
		}
	}
	if len(r.pieces) > ringPieces || len(r.buf) != ringBytes {
		t.Fatal("not bounded")
	}
	got = nil
	r.add(b, bytes.Repeat([]byte("y"), 3*maxLogLine), true)
	r.read(0, l.visit)
	l.flush(time.Now())
	if n := len(got); n < 3 || len(got[n-1]) != maxLogLine {
		t.Fatal(n)
	}
}
