//go:build linux

package guest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// tree makes files below a directory; a name that ends in a slash is a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// leftovers are the names below dir that the daemon makes for a moment.
func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(path, ".pandastack-") {
			out = append(out, path)
		}
		return nil
	})
	return out
}

func TestPutFile(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b")
	put := func(o guest.PutOptions, text string) (api.FileInfo, error) {
		return d.PutFile(ctx, path, "daemon", o, strings.NewReader(text))
	}
	at := func(n int64) *int64 { return &n }
	for i, step := range []struct {
		o          guest.PutOptions
		text, want string
	}{
		{guest.PutOptions{Append: true}, "one", "one"},
		{guest.PutOptions{Append: true}, "two", "onetwo"},
		{guest.PutOptions{Offset: at(4)}, "!", "onet!"},
		{guest.PutOptions{Atomic: true}, "whole", "whole"},
		{guest.PutOptions{Offset: at(0)}, "", ""},
	} {
		info, err := put(step.o, step.text)
		got, _ := os.ReadFile(path)
		if err != nil || string(got) != step.want || info.Size != int64(len(step.want)) || info.Path != path || info.Owner != "daemon" {
			t.Errorf("step %d: %q, %+v, %v", i, got, info, err)
		}
	}
	_, err := put(guest.PutOptions{Offset: at(9)}, "x")
	wantCode(t, err, api.CodeFileInvalidPath)
	_, err = put(guest.PutOptions{Append: true, Atomic: true}, "x")
	wantCode(t, err, api.CodeInvalidRequest)
	_, err = d.PutFile(ctx, dir, "", guest.PutOptions{Atomic: true}, strings.NewReader("x"))
	wantCode(t, err, api.CodeFileIsDirectory)

	// Of an atomic write that breaks off nothing is seen.
	if err := errors.Join(os.WriteFile(path, []byte("before"), 0o640), os.Chmod(path, 0o640), os.Chown(path, 3, 4)); err != nil {
		t.Fatal(err)
	}
	_, err = d.PutFile(ctx, path, "", guest.PutOptions{Atomic: true}, io.MultiReader(strings.NewReader("half"), broken{}))
	wantCode(t, err, api.CodeInvalidRequest)
	eventually(t, "the temporary file goes", func() bool { return len(leftovers(t, dir)) == 0 })
	if got, _ := os.ReadFile(path); string(got) != "before" {
		t.Errorf("%q", got)
	}
	// One that does not keeps mode and owner, and goes through a link.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PutFile(ctx, link, "", guest.PutOptions{Atomic: true}, strings.NewReader("after")); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&0o7777 != 0o640 || st.Uid != 3 || st.Gid != 4 {
		t.Errorf("mode %o, owner %d:%d, %v", st.Mode, st.Uid, st.Gid, err)
	}
	if got, _ := os.ReadFile(path); string(got) != "after" {
		t.Errorf("%q", got)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the source broke") }

func TestCopyModesAndLinks(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	dir := tree(t, map[string]string{"src/a": "A", "src/sub/b": "B", "src/empty/": ""})
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "new", "dst")
	if err := errors.Join(os.Symlink("a", src+"/link"), os.Chmod(src+"/a", 0o700), unix.Mkfifo(src+"/fifo", 0o644)); err != nil {
		t.Fatal(err)
	}
	got, err := d.Copy(ctx, api.CopyFile{From: src, To: dst}, "daemon")
	if err != nil || got.Count != 6 {
		t.Fatalf("%+v %v", got, err)
	}
	info, err := d.Stat(ctx, dst+"/a", "")
	if err != nil || info.Mode != "-rwx------" || info.Owner != "daemon" {
		t.Errorf("%+v %v", info, err)
	}
	if target, err := d.Readlink(ctx, dst+"/link", ""); err != nil || target.Target != "a" {
		t.Errorf("%+v %v", target, err)
	}
	_, err = d.Copy(ctx, api.CopyFile{From: src + "/a", To: dst + "/a"}, "")
	wantCode(t, err, api.CodeFileExists)
	if _, err = d.Copy(ctx, api.CopyFile{From: src + "/sub/b", To: dst + "/a", Overwrite: true}, ""); err != nil {
		t.Error(err)
	}
	_, err = d.Copy(ctx, api.CopyFile{From: src, To: src + "/sub/deeper"}, "")
	wantCode(t, err, api.CodeFileInvalidPath)
	_, err = d.Copy(ctx, api.CopyFile{From: src + "/none", To: dst + "/x"}, "")
	wantCode(t, err, api.CodeFileNotFound)
	if left := leftovers(t, dir); len(left) > 0 {
		t.Error(left)
	}

	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(outside, nil, 0o600), os.Symlink(outside, dst+"/out")); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Chmod(ctx, api.ChangeMode{Path: dst, Mode: "0755", Recursive: true}, ""); err != nil || n.Count != 7 {
		t.Errorf("%+v %v", n, err)
	}
	if n, err := d.Chown(ctx, api.ChangeOwner{Path: dst, Owner: "bin", Recursive: true}, ""); err != nil || n.Count != 7 {
		t.Errorf("%+v %v", n, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(outside, &st); err != nil || st.Mode&0o777 != 0o600 || st.Uid != 0 {
		t.Errorf("what a link leads to was changed: %o %d", st.Mode, st.Uid)
	}
	if info, err := d.Stat(ctx, dst+"/sub/b", ""); err != nil || info.Mode != "-rwxr-xr-x" || info.Owner != "bin" || info.Group != "bin" {
		t.Errorf("%+v %v", info, err)
	}
	for _, mode := range []string{"999", "", "77777"} {
		_, err = d.Chmod(ctx, api.ChangeMode{Path: dst, Mode: mode}, "")
		wantCode(t, err, api.CodeFileInvalidPath)
	}
	_, err = d.Chown(ctx, api.ChangeOwner{Path: dst, Owner: "nobody-here"}, "")
	wantCode(t, err, api.CodeInvalidRequest)
	_, err = d.Chown(ctx, api.ChangeOwner{Path: dst, Group: "nobody-here"}, "")
	wantCode(t, err, api.CodeInvalidRequest)
	_, err = d.Symlink(ctx, api.MakeLink{Path: dst + "/a", Target: "x"}, "")
	wantCode(t, err, api.CodeFileExists)
	_, err = d.Readlink(ctx, dst+"/a", "")
	wantCode(t, err, api.CodeFileInvalidPath)
}

func TestGlob(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := tree(t, map[string]string{"a.go": "", "b.txt": "", "src/c.go": "", "src/deep/er/d.go": "", "src/deep/e.py": "", "x-ä.go": "", "[z].go": ""})
	for pattern, want := range map[string]string{
		"*.go":              "[z].go a.go x-ä.go",
		"**/*.go":           "[z].go a.go src/c.go src/deep/er/d.go x-ä.go",
		"src/**/*.{go,py}":  "src/c.go src/deep/e.py src/deep/er/d.go",
		"src/*":             "src/c.go src/deep",
		"src/**":            "src/c.go src/deep src/deep/e.py src/deep/er src/deep/er/d.go",
		"[ab].*":            "a.go b.txt",
		"[!a-b].go":         "",
		`\[z\].go`:          "[z].go",
		"x-?.go":            "x-ä.go",
		"../*":              "",
		"src/deep/er/d.go":  "src/deep/er/d.go",
		"none/**":           "",
		"**/er/**":          "src/deep/er/d.go",
		"src/deep/er/../**": "",
	} {
		got, err := d.Glob(testContext(t), api.Glob{Path: dir, Pattern: pattern}, "")
		var names []string
		for _, m := range got.Matches {
			names = append(names, strings.TrimPrefix(m.Path, dir+"/"))
		}
		if s := strings.Join(names, " "); err != nil || s != want || got.Truncated {
			t.Errorf("%s: %q, want %q (%v)", pattern, s, want, err)
		}
	}
	got, err := d.Glob(testContext(t), api.Glob{Path: dir, Pattern: "**", Limit: 3}, "")
	if err != nil || len(got.Matches) != 3 || !got.Truncated {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"[", "{a", "!x", strings.Repeat("a", 2000)} {
		_, err := d.Glob(testContext(t), api.Glob{Path: dir, Pattern: bad}, "")
		wantCode(t, err, api.CodeFileInvalidPath)
	}
	_, err = d.Glob(testContext(t), api.Glob{Path: dir + "/a.go", Pattern: "*"}, "")
	wantCode(t, err, api.CodeFileNotDirectory)
}

// matches is the matches of a search in short.
func matches(dir string, r api.SearchResult) string {
	var out []string
	for _, m := range r.Matches {
		out = append(out, fmt.Sprintf("%s:%d:%d:%s<%s>%s", strings.TrimPrefix(m.Path, dir+"/"), m.Line, m.Column, strings.Join(m.Before, ","), m.Text, strings.Join(m.After, ",")))
	}
	return strings.Join(out, " ")
}

// SearchFiles is a tree, and searches with what they find in it.
func searchCases() (map[string]string, map[string]api.Search) {
	files := map[string]string{
		"a.txt": "one\ntwo needle\nthree\nfour\nneedle needle\n", "b.go": "x\r\nNeedle\r\n", "bin": "needle\x00needle\n", "node_modules/c.txt": "needle\n",
		".git/config": "needle\n", ".hidden": "needle", "long": strings.Repeat("x", 3<<20) + "needle", "latin": "caf\xe9 needle\n", "sub/needle.md": "",
	}
	return files, map[string]api.Search{
		"a.txt:2:5:<two needle> a.txt:5:1:<needle needle>":                                                   {Pattern: "needle", Include: []string{"*.txt"}, Exclude: []string{"node_modules"}},
		"a.txt:2:5:one<two needle>three a.txt:5:1:four<needle needle>":                                       {Pattern: "n.e+dle", Context: 1, Include: []string{"a.*"}},
		"a.txt:2:5:<two needle> a.txt:5:1:<needle needle> b.go:2:1:<Needle> node_modules/c.txt:1:1:<needle>": {Pattern: "NEEDLE", Literal: true, IgnoreCase: true, Include: []string{"*.{txt,go}"}},
		".hidden:1:1:<needle>":         {Pattern: "^needle$", Include: []string{".*"}},
		"latin:1:6:<caf\uFFFD needle>": {Pattern: "needle", Include: []string{"latin"}},
		"sub/needle.md:0:0:<>":         {Pattern: "need", Names: true},
		"":                             {Pattern: "needle", Include: []string{"bin"}},
	}
}

// TestSearch looks with ripgrep where it is there, and without, for the same.
func TestSearch(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	files, cases := searchCases()
	dir := tree(t, files)
	for want, in := range cases {
		in.Path = dir
		got, err := d.Search(testContext(t), in, "")
		if s := matches(dir, got); err != nil || s != want || got.Truncated || got.TimedOut {
			t.Errorf("%+v:\n\t%s\nwant\n\t%s (%v)", in, s, want, err)
		}
	}
	got, err := d.Search(testContext(t), api.Search{Path: dir, Pattern: "needle", Include: []string{"long"}}, "")
	if err != nil || len(got.Matches) != 0 && len(got.Matches[0].Text) > 4<<10 {
		t.Errorf("%d matches, %v", len(got.Matches), err)
	}
	got, err = d.Search(testContext(t), api.Search{Path: dir + "/a.txt", Pattern: "needle", MaxResults: 1}, "")
	if err != nil || len(got.Matches) != 1 || !got.Truncated {
		t.Errorf("%+v %v", got, err)
	}
	got, err = d.Search(testContext(t), api.Search{Path: "/", Pattern: "no-such-text-anywhere-[0-9]{9}", TimeoutSeconds: 0.05}, "")
	if err != nil || !got.TimedOut {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []api.Search{{Pattern: "("}, {Pattern: ""}, {Pattern: "x", Include: []string{"["}}} {
		_, err := d.Search(testContext(t), bad, "")
		wantCode(t, err, api.CodeFileInvalidPath)
	}
	_, err = d.Search(testContext(t), api.Search{Path: dir + "/none", Pattern: "x"}, "")
	wantCode(t, err, api.CodeFileNotFound)
}

func TestReplace(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := tree(t, map[string]string{"a": "foo(1) foo(2)\n", "b/c": "foo(3)\n", "bin": "foo(4)\x00", "other": "bar"})
	if err := errors.Join(os.Chmod(dir+"/a", 0o750), os.Chown(dir+"/a", 7, 8)); err != nil {
		t.Fatal(err)
	}
	in := api.Replace{Path: dir, Pattern: `foo\((\d)\)`, Replacement: "bar[$1]", DryRun: true}
	for _, dry := range []bool{true, false} {
		in.DryRun = dry
		got, err := d.Replace(testContext(t), in, "")
		if err != nil || got.Count != 3 || len(got.Files) != 2 || got.Files[0].Count != 2 || got.DryRun != dry {
			t.Fatalf("%+v %v", got, err)
		}
		want := map[bool]string{true: "foo(1) foo(2)\n", false: "bar[1] bar[2]\n"}[dry]
		if text, _ := os.ReadFile(dir + "/a"); string(text) != want {
			t.Errorf("dry %v: %q", dry, text)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(dir+"/a", &st); err != nil || st.Mode&0o777 != 0o750 || st.Uid != 7 || st.Gid != 8 {
		t.Errorf("%o %d:%d %v", st.Mode, st.Uid, st.Gid, err)
	}
	if got, err := d.Replace(testContext(t), api.Replace{Path: dir, Pattern: "BAR[", Replacement: "$1", Literal: true, IgnoreCase: true, Include: []string{"a"}}, ""); err != nil || got.Count != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if text, _ := os.ReadFile(dir + "/a"); string(text) != "$11] $12]\n" {
		t.Errorf("%q", text)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Error(left)
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx := testContext(t)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	dir := tree(t, map[string]string{"a": "A", "sub/b": big, "empty/": "", "caf\xe9": "not UTF-8"})
	if err := errors.Join(os.Symlink("/etc/passwd", dir+"/link"), os.Chmod(dir+"/a", 0o751), unix.Mkfifo(dir+"/fifo", 0o600)); err != nil {
		t.Fatal(err)
	}
	r, err := d.Archive(ctx, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "new", "to")
	got, err := d.Extract(ctx, to, "daemon", bytes.NewReader(data))
	if err != nil || got.Files != 6 || got.Path != to {
		t.Fatalf("%+v %v", got, err)
	}
	for name, want := range map[string]string{"a": "A", "sub/b": big, "caf\xe9": "not UTF-8"} {
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != want {
			t.Errorf("%q: %d bytes, %v", name, len(text), err)
		}
	}
	if info, err := d.Stat(ctx, to+"/a", ""); err != nil || info.Mode != "-rwxr-x--x" || info.Owner != "daemon" {
		t.Errorf("%+v %v", info, err)
	}
	if target, _ := os.Readlink(to + "/link"); target != "/etc/passwd" {
		t.Errorf("%q", target)
	}
	// Again over what is there, and as the system's tar reads it.
	if _, err := d.Extract(ctx, to, "daemon", bytes.NewReader(data)); err != nil {
		t.Error(err)
	}
	list := exec.Command("tar", "tz")
	list.Stdin = bytes.NewReader(data)
	if out, err := list.CombinedOutput(); err != nil || !strings.Contains(string(out), "sub/b") {
		t.Errorf("%s %v", out, err)
	}
	for _, bad := range [][]byte{data[:len(data)/2], []byte("no archive at all, but long enough to be taken for the header of one: " + strings.Repeat("x", 600))} {
		_, err := d.Extract(ctx, to, "", bytes.NewReader(bad))
		wantCode(t, err, api.CodeFileInvalidPath)
	}
	_, err = d.Extract(ctx, to+"/a", "", bytes.NewReader(data))
	wantCode(t, err, api.CodeFileNotDirectory)
	_, err = d.Archive(ctx, dir+"/none", "")
	wantCode(t, err, api.CodeFileNotFound)
}

// TestArchiveEscapes tries every way out of the directory.
func TestArchiveEscapes(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	for name, entries := range map[string][]tar.Header{
		"dots":           {{Name: "../evil", Typeflag: tar.TypeReg}},
		"inner dots":     {{Name: "a/../../evil", Typeflag: tar.TypeReg}},
		"absolute":       {{Name: "OUT/evil", Typeflag: tar.TypeReg}},
		"link then file": {{Name: "l", Linkname: "OUT", Typeflag: tar.TypeSymlink}, {Name: "l/evil", Typeflag: tar.TypeReg}},
		"link then dir":  {{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "l/evil/", Typeflag: tar.TypeDir}},
		"link chain":     {{Name: "a", Linkname: ".", Typeflag: tar.TypeSymlink}, {Name: "b", Linkname: "a/..", Typeflag: tar.TypeSymlink}, {Name: "b/evil", Typeflag: tar.TypeReg}},
		"hard link":      {{Name: "h", Linkname: "../victim", Typeflag: tar.TypeLink}, {Name: "h", Typeflag: tar.TypeReg}},
		"hard absolute":  {{Name: "h", Linkname: "OUT/victim", Typeflag: tar.TypeLink}},
		"hard over link": {{Name: "l", Linkname: "OUT/victim", Typeflag: tar.TypeSymlink}, {Name: "h", Linkname: "l", Typeflag: tar.TypeLink}},
		"link mode":      {{Name: "l", Linkname: "OUT", Typeflag: tar.TypeSymlink}, {Name: "l", Typeflag: tar.TypeDir, Mode: 0o777}},
		"to write":       {{Name: "l", Linkname: "OUT/victim", Typeflag: tar.TypeSymlink}, {Name: "l", Typeflag: tar.TypeReg}},
	} {
		parent := t.TempDir()
		if err := errors.Join(os.WriteFile(parent+"/victim", []byte("safe"), 0o600), os.Chmod(parent, 0o700)); err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range entries {
			h.Name, h.Linkname = strings.Replace(h.Name, "OUT", parent, 1), strings.Replace(h.Linkname, "OUT", parent, 1)
			if h.Typeflag == tar.TypeReg {
				h.Size, h.Mode = 4, 0o777
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				_, _ = io.WriteString(w, "evil")
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := d.Extract(testContext(t), parent+"/to", "", &buf)
		if name != "to write" {
			if code := api.CodeOf(err); err == nil || code != api.CodeFileInvalidPath && code != api.CodeFileNotDirectory && code != api.CodeFileExists {
				t.Errorf("%s: %v", name, err)
			}
		}
		fi, _ := os.Stat(parent)
		text, _ := os.ReadFile(parent + "/victim")
		var st unix.Stat_t
		if err := unix.Lstat(parent+"/victim", &st); err != nil || string(text) != "safe" || st.Nlink != 1 || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %q, %d links, %v, directory %v", name, text, st.Nlink, err, fi.Mode())
		}
		if _, err := os.Lstat(parent + "/evil"); err == nil {
			t.Errorf("%s: a file was made outside", name)
		}
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, {Name: "fifo", Typeflag: tar.TypeFifo}, {Name: "suid", Typeflag: tar.TypeReg, Mode: 0o6755}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	got, err := d.Extract(testContext(t), to, "", &buf)
	if fi, e := os.Stat(to + "/suid"); err != nil || got.Skipped != 2 || got.Files != 1 || e != nil || fi.Mode() != 0o755 {
		t.Errorf("%+v %v, %v", got, err, e)
	}
}

// TestWatchNative makes ten thousand changes in new directories.
func TestWatchNative(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	dir := t.TempDir()
	w, err := d.Watch(ctx, dir, "", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const dirs, each = 100, 100
	go func() {
		for i := range dirs {
			sub := filepath.Join(dir, fmt.Sprintf("d%d", i%10), fmt.Sprintf("s%d", i))
			_ = os.MkdirAll(sub, 0o755)
			for j := range each {
				_ = os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), []byte("x"), 0o644)
			}
		}
		_ = os.Rename(filepath.Join(dir, "d0"), filepath.Join(dir, "moved"))
	}()
	seen := map[string]bool{}
	for !seen[filepath.Join(dir, "moved")] {
		ev, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == api.FileOverflow {
			t.Log("the burst was too fast, and the daemon said so")
			return
		}
		if ev.Type == api.FileCreate {
			seen[ev.Path] = true
		}
	}
	for i := range dirs {
		for j := range each {
			path := filepath.Join(dir, fmt.Sprintf("d%d", i%10), fmt.Sprintf("s%d", i), fmt.Sprint(j))
			if !seen[path] {
				t.Fatalf("%s was missed", path)
			}
		}
	}
	// What is in a directory that was moved is seen under its new name.
	eventuallySees(t, w, func() { _ = os.WriteFile(filepath.Join(dir, "moved", "s10", "late"), nil, 0o644) }, filepath.Join(dir, "moved", "s10", "late"))
	_, err = d.Watch(ctx, dir+"/none", "", false)
	wantCode(t, err, api.CodeFileNotFound)
	if err = os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Recv()
	}
	if err != io.EOF {
		t.Errorf("the end of the directory is %v", err)
	}
}

// eventuallySees makes a change and reads until it is seen.
func eventuallySees(t *testing.T, w *guest.FileWatch, change func(), path string) {
	t.Helper()
	change()
	for {
		ev, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Path == path || ev.Type == api.FileOverflow {
			return
		}
	}
}

// TestClientsThatLeave leaves in the middle of each stream; neither processes,
// open files nor half files stay.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c", "cd "+dir+" && git init -q . && head -c 30000000 /dev/urandom > big").CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	before := d.open(t)
	for range 3 {
		ctx, cancel := context.WithCancel(testContext(t))
		w, err := d.Watch(ctx, dir, "", true)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Archive(ctx, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = d.PutFile(ctx, dir+"/atomic", "", guest.PutOptions{Atomic: true}, &endless{}) }()
		go func() {
			_, _ = d.Git(ctx, guest.GitRun{Args: []string{"-c", "alias.x=!sleep 4242", "x"}, Dir: dir, User: "root", TimeoutMS: 60_000})
		}()
		eventually(t, "git runs", func() bool { return len(sleepers(t, "4242")) > 0 })
		eventually(t, "the upload runs", func() bool { return len(leftovers(t, dir)) > 0 })
		cancel()
		_, _ = w.Close(), r.Close()
		eventually(t, "git ends", func() bool { return len(sleepers(t, "4242")) == 0 })
		eventually(t, "the upload's file goes", func() bool { return len(leftovers(t, dir)) == 0 })
	}
	d.Close()
	eventually(t, "the daemon's files are closed", func() bool { return d.open(t) <= before+2 })
}

type endless struct{}

func (e *endless) Read(p []byte) (int, error) { return len(p), nil }

// open counts the open files of the daemon.
func (d *daemon) open(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func sleepers(t *testing.T, seconds string) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(path string) bool {
		text, _ := os.ReadFile(path)
		return string(text) != "sleep\x00"+seconds+"\x00"
	})
}
