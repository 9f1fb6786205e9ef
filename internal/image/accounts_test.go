//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUserIsAdded(t *testing.T) {
	needRoot(t)
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(outside, []byte("evil:x:0:0::/:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    map[string]string
		absent  []string
	}{
		"bare": {nil, map[string]string{
			"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
			"etc/group":  "root:x:0:\nuser:x:1000:\n",
		}, []string{"etc/shadow", "etc/sudoers.d"}},
		"number taken": {[]tar.Header{
			reg("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash\n"),
			reg("etc/group", "root:x:0:\nnode:x:1000:\nextra:x:1001:\nsudo:x:27:node\n"),
			{Name: "etc/shadow", Linkname: "root:*:1:0:99999:7:::", Mode: 0o640, Gid: 42},
			reg("bin/bash", string(fakeShell())), reg("usr/bin/sudo", "x"), reg("etc/skel/.bashrc", "skel"),
		}, map[string]string{
			"etc/passwd":            "root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash\nuser:x:1002:1002::/home/user:/bin/bash\n",
			"etc/group":             "root:x:0:\nnode:x:1000:\nextra:x:1001:\nsudo:x:27:node,user\nuser:x:1002:\n",
			"etc/shadow":            "root:*:1:0:99999:7:::\nuser:!:19000:0:99999:7:::\n",
			"etc/sudoers.d/90-user": "user ALL=(ALL:ALL) NOPASSWD:ALL\n",
			"home/user/.bashrc":     "skel",
		}, nil},
		"there already": {[]tar.Header{reg("etc/passwd", "user:x:500:501::/u:/bin/sh\n"), reg("u/f", "x")}, map[string]string{
			"etc/passwd": "user:x:500:501::/u:/bin/sh\n", "u/f": "x",
		}, []string{"home/user"}},
		"link to the host's": {[]tar.Header{link(tar.TypeSymlink, "etc/passwd", outside), link(tar.TypeSymlink, "etc/resolv.conf", "/run/resolve/conf")}, map[string]string{
			"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", "etc/resolv.conf": "",
		}, nil},
	} {
		img, err := testStore(t).FromTar(t.Context(), bytes.NewReader(archive(t, withShell(c.entries...)...)), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		mounted(t, img, func(root string) {
			for f, want := range c.want {
				if fi, err := os.Lstat(filepath.Join(root, f)); err != nil || !fi.Mode().IsRegular() {
					t.Errorf("%s: %s is no regular file: %v", name, f, err)
				} else if b, _ := os.ReadFile(filepath.Join(root, f)); strings.TrimRight(string(b), "\n") != strings.TrimRight(want, "\n") {
					t.Errorf("%s: %s is %q, want %q", name, f, b, want)
				}
			}
			for _, f := range c.absent {
				if _, err := os.Lstat(filepath.Join(root, f)); err == nil {
					t.Errorf("%s: %s was made", name, f)
				}
			}
		})
	}
	if b, _ := os.ReadFile(outside); !strings.HasPrefix(string(b), "evil") {
		t.Errorf("a file of the host was changed: %q", b)
	}
}
