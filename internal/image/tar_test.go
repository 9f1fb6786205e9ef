//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// unpack runs untar into a new directory beside which nothing may appear.
func unpack(t testing.TB, data []byte, l Limits) (root string, err error) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	tr, err := openTree(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	return root, untar(t.Context(), tr, bytes.NewReader(data), l.withDefaults(), nil)
}

func TestUntarRefuses(t *testing.T) {
	needRoot(t)
	t.Parallel()
	many := make([]tar.Header, 0, 100_000)
	for i := range cap(many) {
		many = append(many, tar.Header{Name: fmt.Sprintf("d%d/", i), Typeflag: tar.TypeDir})
	}
	cases := map[string]struct {
		data  []byte
		limit Limits
		text  string
	}{
		"parent":             {archive(t, reg("../evil", "x")), Limits{}, "leads upwards"},
		"parent inside":      {archive(t, reg("a/../../evil", "x")), Limits{}, "leads upwards"},
		"hard link out":      {archive(t, link(tar.TypeLink, "a", "../../etc/passwd")), Limits{}, "leads upwards"},
		"hard link absolute": {archive(t, link(tar.TypeLink, "a", "/etc/passwd")), Limits{}, "not a file in it before"},
		"hard link by link":  {archive(t, link(tar.TypeSymlink, "l", "/etc"), link(tar.TypeLink, "a", "l/passwd")), Limits{}, "not a file in it before"},
		"hard link to dir":   {archive(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, link(tar.TypeLink, "a", "d")), Limits{}, "not a file in it before"},
		"device":             {archive(t, tar.Header{Name: "x/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}), Limits{}, "device node outside /dev"},
		"device by link":     {archive(t, link(tar.TypeSymlink, "x", "dev"), tar.Header{Name: "x/sda", Typeflag: tar.TypeBlock}), Limits{}, "device node outside /dev"},
		"file over dir":      {archive(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, reg("d", "x")), Limits{}, "replaces a directory"},
		"file over root":     {archive(t, reg("/.", "x")), Limits{}, "replaces a directory"},
		"dir below file":     {archive(t, reg("f", "x"), reg("f/g", "x")), Limits{}, "not a directory"},
		"dangling way":       {archive(t, link(tar.TypeSymlink, "l", "/nowhere"), reg("l/f", "x")), Limits{}, "leads nowhere"},
		"loop":               {archive(t, link(tar.TypeSymlink, "l", "l"), reg("l/f", "x")), Limits{}, "too many symbolic links"},
		"owner":              {archive(t, tar.Header{Name: "f", Uid: 1<<32 - 1}), Limits{}, "owner that does not exist"},
		"too large":          {archive(t, reg("f", "0123456789")), Limits{Bytes: 9}, "more than 9 bytes"},
		"too large together": {archive(t, reg("f", "01234"), reg("g", "56789")), Limits{Bytes: 9}, "more than 9 bytes"},
		"huge claim":         {hugeClaim(t), Limits{}, "claims"},
		"too many":           {archive(t, many...), Limits{Entries: 1000}, "more than 1000 entries"},
		"empty":              {archive(t), Limits{}, "empty"},
		"cut":                {archive(t, reg("f", string(make([]byte, 5000))))[:3000], Limits{}, "cannot be read"},
		"not a tar":          {bytes.Repeat([]byte("not a tar "), 200), Limits{}, "cannot be read"},
		"deep":               {archive(t, reg(string(bytes.Repeat([]byte("a/"), 4000))+"f", "x")), Limits{}, "too long"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, err := unpack(t, c.data, c.limit)
			wantCode(t, err, api.CodeTemplateInvalid, c.text)
			if left, _ := os.ReadDir(filepath.Dir(root)); len(left) != 1 {
				t.Errorf("something escaped: %v", left)
			}
		})
	}
}

// hugeClaim is an archive of one block whose file says it has a petabyte.
func hugeClaim(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "f", Size: 1 << 50, Mode: 0o644, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestUntarStaysInside checks what is not refused but lands beneath the root,
// as it would inside a container.
func TestUntarStaysInside(t *testing.T) {
	needRoot(t)
	t.Parallel()
	outside := t.TempDir()
	root, err := unpack(t, archive(t,
		reg("/absolute", "1"),
		tar.Header{Name: outside + "/", Typeflag: tar.TypeDir},
		link(tar.TypeSymlink, "up", "../../../../../.."+outside),
		link(tar.TypeSymlink, "abs", outside),
		reg("up/by-up", "2"),
		reg("abs/by-abs", "3"),
		link(tar.TypeSymlink, "final", outside+"/target"),
		reg("final", "4"),
		tar.Header{Name: "dev/sda", Typeflag: tar.TypeBlock},
		reg("one", "5"), link(tar.TypeSymlink, "way", "one-dir"), tar.Header{Name: "one-dir/", Typeflag: tar.TypeDir},
		reg("way/a", "6"), tar.Header{Name: "two-dir/", Typeflag: tar.TypeDir}, link(tar.TypeSymlink, "way", "two-dir"), reg("way/b", "7"),
	), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"absolute": "1", outside + "/by-up": "2", outside + "/by-abs": "3", "final": "4", "one-dir/a": "6", "two-dir/b": "7",
	} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("written outside: %v", left)
	}
	if _, err := os.Lstat(filepath.Join(root, "dev/sda")); !os.IsNotExist(err) {
		t.Errorf("dev/sda exists: %v", err)
	}
}

// richArchive has one of everything whose attributes must survive.
func richArchive(t testing.TB) []byte {
	t.Helper()
	capability := string([]byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // cap_net_bind_service+ep
	return archive(t, withShell(
		tar.Header{Name: "opt/", Typeflag: tar.TypeDir, Mode: 0o2750, Uid: 12, Gid: 34},
		tar.Header{Name: "opt/suid", Linkname: "s", Mode: 0o4755, Uid: 0, Gid: 7},
		tar.Header{Name: "opt/attr", Linkname: "a", Mode: 0o600, Uid: 70000, Gid: 80000, PAXRecords: map[string]string{
			"SCHILY.xattr.user.color": "blue", "SCHILY.xattr.security.capability": capability,
			"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.security.selinux": "x",
		}},
		link(tar.TypeLink, "opt/hard", "opt/attr"),
		link(tar.TypeSymlink, "opt/soft", "/etc/../opt/attr"),
		tar.Header{Name: "opt/fifo", Typeflag: tar.TypeFifo, Mode: 0o622},
		reg("opt/ümläut and space", "u"),
	)...)
}

func checkRich(t *testing.T, root string) {
	t.Helper()
	stat := func(name string) unix.Stat_t {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, name), &st); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return st
	}
	for name, want := range map[string]struct{ mode, uid, gid uint32 }{
		"opt":                  {unix.S_IFDIR | 0o2750, 12, 34},
		"opt/suid":             {unix.S_IFREG | 0o4755, 0, 7},
		"opt/attr":             {unix.S_IFREG | 0o600, 70000, 80000},
		"opt/fifo":             {unix.S_IFIFO | 0o622, 0, 0},
		"opt/ümläut and space": {unix.S_IFREG | 0o755, 0, 0},
		"tmp":                  {unix.S_IFDIR | 0o1777, 0, 0},
		"workspace":            {unix.S_IFDIR | 0o755, 1000, 1000},
		"home/user":            {unix.S_IFDIR | 0o755, 1000, 1000},
		"proc":                 {unix.S_IFDIR | 0o555, 0, 0},
		"etc/resolv.conf":      {unix.S_IFREG | 0o644, 0, 0},
		"dev":                  {unix.S_IFDIR | 0o755, 0, 0},
	} {
		if st := stat(name); st.Mode != want.mode || st.Uid != want.uid || st.Gid != want.gid {
			t.Errorf("%s: mode %o owner %d:%d; want %o %d:%d", name, st.Mode, st.Uid, st.Gid, want.mode, want.uid, want.gid)
		}
	}
	for _, name := range []string{"opt", "opt/suid", "opt/attr", "opt/soft", "opt/fifo"} {
		if st := stat(name); st.Mtim.Sec != day.Unix() {
			t.Errorf("%s: mtime %v, want %v", name, time.Unix(st.Mtim.Unix()), day)
		}
	}
	if a, b := stat("opt/attr"), stat("opt/hard"); a.Ino != b.Ino || a.Nlink != 2 {
		t.Errorf("the hard link is another file: inodes %d and %d, %d links", a.Ino, b.Ino, a.Nlink)
	}
	if l, _ := os.Readlink(filepath.Join(root, "opt/soft")); l != "/etc/../opt/attr" {
		t.Errorf("opt/soft leads to %q", l)
	}
	buf := make([]byte, 64)
	for name, want := range map[string]int{"user.color": 4, "security.capability": 20, "trusted.overlay.opaque": -1} {
		if n, _ := unix.Lgetxattr(filepath.Join(root, "opt/attr"), name, buf); n != want {
			t.Errorf("attribute %s has %d bytes, want %d", name, n, want)
		}
	}
}

func TestTarRoundTrip(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	data := richArchive(t)
	img, err := s.FromTar(t.Context(), bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	mounted(t, img, func(root string) { checkRich(t, root) })
	if err := s.Verify(t.Context(), img.Digest); err != nil {
		t.Error(err)
	}

	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(data)
	w.Close()
	file := filepath.Join(t.TempDir(), "root.tar.gz")
	if err := os.WriteFile(file, gz.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	last := 0.0
	again, err := testStore(t).FromTarFile(t.Context(), file, func(_ string, f float64) {
		if f < last {
			t.Errorf("progress goes back from %v to %v", last, f)
		}
		last = f
	})
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest != img.Digest {
		t.Errorf("the same content gave %s and %s", img.Digest, again.Digest)
	}
	if last != 1 {
		t.Errorf("progress ended at %v", last)
	}
}

func TestDirRoundTrip(t *testing.T) {
	needRoot(t)
	t.Parallel()
	root, err := unpack(t, richArchive(t), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	img, err := testStore(t).FromDir(t.Context(), root, nil)
	if err != nil {
		t.Fatal(err)
	}
	mounted(t, img, func(mnt string) {
		checkRich(t, mnt)
		if left, _ := os.ReadDir(filepath.Join(mnt, "dev")); len(left) != 0 {
			t.Errorf("the image has devices: %v", left)
		}
	})
	if _, err := os.Lstat(filepath.Join(root, "workspace")); !os.IsNotExist(err) {
		t.Errorf("the given directory was changed: %v", err)
	}
	if err := unix.Mknod(filepath.Join(root, "mem"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))); err != nil {
		t.Fatal(err)
	}
	_, err = testStore(t).FromDir(t.Context(), root, nil)
	wantCode(t, err, api.CodeTemplateInvalid, "device node outside /dev")
	_, err = testStore(t, WithLimits(Limits{Entries: 3})).FromDir(t.Context(), root, nil)
	wantCode(t, err, api.CodeTemplateInvalid, "more than 3 entries")
	_, err = testStore(t).FromDir(t.Context(), filepath.Join(root, "nowhere"), nil)
	wantCode(t, err, api.CodeTemplateInvalid, "not a directory")
}

func TestTarFailuresLeaveNothing(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := testStore(t)
	other := fakeShell()
	other[18]++
	cases := map[string]struct {
		data []byte
		text string
	}{
		"no shell":       {archive(t, reg("bin/ls", "x")), "no executable /bin/sh"},
		"shell is a dir": {archive(t, tar.Header{Name: "bin/sh/", Typeflag: tar.TypeDir}), "no executable /bin/sh"},
		"not executable": {archive(t, tar.Header{Name: "bin/sh", Linkname: "x", Mode: 0o644}), "no executable /bin/sh"},
		"leads outside":  {archive(t, link(tar.TypeSymlink, "bin/sh", "/nowhere/sh")), "no executable /bin/sh"},
		"other machine":  {archive(t, reg("bin/sh", string(other))), "another processor"},
		"nothing":        {nil, "empty"},
		"zstd":           {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0}, "zstd"},
		"bad gzip":       {[]byte{0x1f, 0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "gzip"},
		"etc is a file":  {archive(t, withShell(reg("etc", "x"))...), "cannot be completed"},
		"passwd fifo":    {archive(t, withShell(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeFifo})...), "not a regular file"},
		"tmp dangles":    {archive(t, withShell(link(tar.TypeSymlink, "tmp", "/nowhere"))...), "cannot be completed"},
	}
	for name, c := range cases {
		_, err := s.FromTar(t.Context(), bytes.NewReader(c.data), nil)
		if api.CodeOf(err) != api.CodeTemplateInvalid {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantCode(t, err, api.CodeTemplateInvalid, c.text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(archive(t, withShell()...)[:1024]), readerFunc(func([]byte) (int, error) { cancel(); return 0, nil }))
	if _, err := s.FromTar(ctx, r, nil); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(s.dir, "tmp")); len(left) != 0 {
		t.Errorf("left in tmp: %v", left)
	}
	if images, _ := s.List(); len(images) != 0 {
		t.Errorf("images: %v", images)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func FuzzUntar(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("NOT TESTED: unpacking needs root")
	}
	f.Add(richArchive(f))
	f.Add(archive(f, link(tar.TypeSymlink, "a", "/"), reg("a/b", "x"), link(tar.TypeLink, "c", "a/b")))
	f.Add(archive(f, reg("../x", "x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := unpack(t, data, Limits{Bytes: 1 << 20, Entries: 100})
		if err != nil && api.CodeOf(err) != api.CodeTemplateInvalid && api.CodeOf(err) != api.CodeTemplateBuild {
			t.Errorf("an error without a code: %v", err)
		}
		if left, _ := os.ReadDir(filepath.Dir(root)); len(left) != 1 {
			t.Errorf("something escaped: %v", left)
		}
	})
}
