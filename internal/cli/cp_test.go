package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/cli"
)

// listing serves a sandbox whose one directory has the entries given; every
// file holds "owned".
func listing(t *testing.T, entries ...api.FileInfo) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v any
		switch {
		case strings.HasSuffix(r.URL.Path, "/fs/stat"):
			v = api.FileInfo{Type: "directory"}
		case strings.HasSuffix(r.URL.Path, "/fs/dir"):
			v = api.DirList{Entries: entries}
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = io.WriteString(w, "owned")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func download(url, to string) (code int, stderr string) {
	var errs bytes.Buffer
	args := []string{"--api", url, "sandbox", "cp", "x:/dir", to}
	code = cli.Main(context.Background(), args, strings.NewReader(""), io.Discard, &errs, func(string) string { return "" })
	return code, errs.String()
}

// What lists a sandbox's files is in the sandbox, so a name may be an attack.
func TestDownloadStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../evil", "..", ".", "", "/evil", "a/../../evil", "a\x00b", "sub/evil"} {
		parent := t.TempDir()
		to := filepath.Join(parent, "to")
		code, stderr := download(listing(t, api.FileInfo{Name: name, Type: "file", Mode: "-rw-r--r--"}), to)
		if code == 0 || !strings.Contains(stderr, "a name that is none") {
			t.Errorf("%q: exit code %d, %s", name, code, stderr)
		}
		if _, err := os.Stat(filepath.Join(parent, "evil")); err == nil {
			t.Errorf("%q was written outside", name)
		}
	}
}

// A link that is already there does not lead a file out of the directory.
func TestDownloadFollowsNoLinkOut(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	outside := filepath.Join(parent, "outside")
	to := filepath.Join(parent, "to", "dir")
	for _, dir := range []string{outside, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(to, "sub")); err != nil {
		t.Fatal(err)
	}
	code, stderr := download(listing(t, api.FileInfo{Name: "sub", Type: "directory"}), filepath.Join(parent, "to"))
	if code == 0 {
		t.Errorf("it worked: %s", stderr)
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("%v was written outside", left)
	}
}

// Directories without end end.
func TestDownloadIsBounded(t *testing.T) {
	t.Parallel()
	code, stderr := download(listing(t, api.FileInfo{Name: "d", Type: "directory"}), filepath.Join(t.TempDir(), "to"))
	if code == 0 || !strings.Contains(stderr, "directories deep") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
