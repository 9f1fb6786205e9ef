//go:build linux

package guestd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// FuzzExtract extracts whatever comes, and looks at what is beside the directory.
func FuzzExtract(f *testing.F) {
	for _, entries := range [][]tar.Header{
		{{Name: "a/b", Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "../victim", Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "l/victim", Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "h", Linkname: "../victim", Typeflag: tar.TypeLink}, {Name: "h", Typeflag: tar.TypeReg, Size: 1}},
		{{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o777}, {Name: "n", Typeflag: tar.TypeChar}},
	} {
		var buf, zipped bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range entries {
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if h.Size > 0 {
				_, _ = w.Write([]byte("x"))
			}
		}
		w.Close()
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(buf.Bytes())
		z.Close()
		f.Add(buf.Bytes())
		f.Add(zipped.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, "victim"), []byte("safe"), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		x := &extractor{ctx: t.Context(), root: root, uid: os.Getuid(), gid: os.Getgid(), most: 1 << 20}
		_ = x.extract(bytes.NewReader(archive)) // may be any error
		checkBeside(t, parent)
	})
}

// checkBeside fails if anything beside the root is not as it was, or anything in
// it is what is never made.
func checkBeside(t *testing.T, parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v %v", entries, err)
	}
	if text, err := os.ReadFile(filepath.Join(parent, "victim")); err != nil || string(text) != "safe" {
		t.Fatalf("%q %v", text, err)
	}
	_ = filepath.WalkDir(filepath.Join(parent, "root"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
			t.Fatalf("%s is a %v", path, d.Type())
		}
		return nil
	})
}

func FuzzGlob(f *testing.F) {
	for _, p := range []string{"**/*.go", "[a-z]{x,y}?", `\[`, "[", "{", "[]", "[!]", "a/**", "[[:alpha:]]", "{}", "{,}", "é*"} {
		f.Add(p, "a/b.go")
	}
	f.Fuzz(func(_ *testing.T, pattern, path string) {
		if g, err := parseGlob(pattern); err == nil {
			g.match(path)
		}
	})
}
