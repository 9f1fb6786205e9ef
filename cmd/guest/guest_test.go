package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxBinary is how large the program may be: every sandbox has it.
const maxBinary = 15 << 20

// run runs the go command for linux.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// TestDependencies keeps the list of what the program is made of in review.
func TestDependencies(t *testing.T) {
	t.Parallel()
	got := run(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	want, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf(`the packages of the guest program are not those of deps.txt.
It runs in every sandbox: add only what it cannot do without. If this is meant:

	GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' ./cmd/guest > cmd/guest/deps.txt

now it is
%s`, got)
	}
}

// TestRandomness keeps out what has random state in the program's own memory:
// every machine that is made of one snapshot would have the same. What is left
// is crypto/rand, which asks the kernel each time.
func TestRandomness(t *testing.T) {
	t.Parallel()
	list := run(t, "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{end}}`, ".")
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		for _, banned := range []string{"math/rand", "math/rand/v2", "hash/maphash", "github.com/google/uuid"} {
			if slices.Contains(f, banned) {
				t.Errorf("%s uses %s, whose state a snapshot clones", f[0], banned)
			}
		}
	}
	sources, err := filepath.Glob("../../internal/guest/guestd/*.go")
	if err != nil || len(sources) == 0 {
		t.Fatal(err, sources)
	}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, banned := range []string{"os.CreateTemp", "os.MkdirTemp", "crypto/tls"} {
			if bytes.Contains(text, []byte(banned)) {
				t.Errorf("%s uses %s: names or keys of it repeat in every machine of a snapshot", file, banned)
			}
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "guest")
	run(t, "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	fi, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(fi.Size())/(1<<20))
	if fi.Size() > maxBinary {
		t.Errorf("the guest program has %d bytes, at most %d are wanted", fi.Size(), maxBinary)
	}
}
