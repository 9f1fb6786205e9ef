//go:build linux

package image

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/templates"
)

var (
	buildBase = flag.Bool("base", false, "build the real base image (needs a package archive; minutes)")
	baseDir   = flag.String("base-dir", "", "store for -base that is kept; default a temporary one")
)

func TestBaseImage(t *testing.T) {
	if !*buildBase {
		t.Skip("building the base image takes minutes and a package archive: run with -args -base")
	}
	s := testStore(t)
	if *baseDir != "" {
		s = NewStore(*baseDir, s.log)
	}
	r := baseRecipe(t)
	start := time.Now()
	last := ""
	img, err := s.Rebuild(t.Context(), r, func(step string, f float64) {
		if step != last || f == 1 {
			t.Logf("%6.1fs %5.1f%% %s", time.Since(start).Seconds(), f*100, step)
		}
		last = step
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, tailOf(err))
	}
	t.Logf("built in %s: %s, %d MB", time.Since(start).Round(time.Millisecond), img.Digest, img.Size>>20)
	start = time.Now()
	again, err := s.FromRecipe(t.Context(), r, nil)
	if err != nil || again.Digest != img.Digest {
		t.Fatalf("second run: %v, %v", again, err)
	}
	t.Logf("second run: %s", time.Since(start))
	out, err := inRoot(t, img, baseSmoke)
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// baseSmoke is what a person does first in a sandbox. The last line checks that
// Python's byte code fits its sources, which it does only while their times are
// as they were.
const baseSmoke = `set -e
id; sudo -n id -u; python --version; pip --version; node --version; npm --version; git --version; gcc --version | head -1
python3 -m venv /tmp/v; python3 -c 'import ssl, sqlite3, json'; npm config get prefix; locale | head -1
touch /workspace/x /usr/local/bin/x $HOME/x; test "$(stat -c %U /workspace)" = user
test -z "$(ls /tmp/apt* /var/lib/apt/lists/*Packages /var/cache/apt/archives/*.deb 2>/dev/null)"
python3 -c 'import json, os, struct; b = open(json.__cached__, "rb").read(16); assert struct.unpack("<I", b[8:12])[0] == int(os.stat(json.__file__).st_mtime)'
`

func baseRecipe(t *testing.T) Recipe {
	t.Helper()
	file, data, err := templates.Read("base")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRecipe(file, data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBaseRecipeParses(t *testing.T) {
	t.Parallel()
	for _, name := range templates.Names() {
		file, data, err := templates.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseRecipe(file, data)
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != name {
			t.Errorf("%s is named %q", file, r.Name)
		}
	}
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	needRoot(t)
	for _, m := range Requirements(t.Context()) {
		t.Skipf("%s is not installed", m.Package)
	}
	t.Parallel()
	s := testStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := Recipe{Name: "tiny", Debian: &Debian{Suite: "trixie"}}
	_, err := s.FromRecipe(ctx, r, func(step string, f float64) { cancel() })
	if ctx.Err() == nil {
		t.Skipf("the package archive cannot be reached: %v", err)
	}
	if err == nil {
		t.Fatal("a cancelled build succeeded")
	}
	left, _ := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if len(left) != 0 {
		t.Errorf("left in tmp: %v", left)
	}
	noMounts(t, s.dir)
}
