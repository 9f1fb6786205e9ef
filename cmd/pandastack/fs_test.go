//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// TestFileOperations uses every file operation on a real sandbox.
func TestFileOperations(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(sb.Files.WriteFile(ctx, "/workspace/p/src/a.go", []byte("package a // TODO one\n\nvar x = 1\n")))
	ok(sb.Files.WriteFile(ctx, "/workspace/p/src/deep/b.go", []byte("package b\n// TODO two\n")))
	ok(sb.Files.WriteFile(ctx, "/workspace/p/bin", []byte("TODO\x00")))
	if info, err := sb.Append(ctx, "/workspace/p/src/a.go", strings.NewReader("// end\n")); err != nil || info.Size != 40 {
		t.Errorf("%+v %v", info, err)
	}
	if info, err := sb.WriteAtomic(ctx, "/workspace/p/atomic", strings.NewReader("all")); err != nil || info.Size != 3 || info.Owner != "user" {
		t.Errorf("%+v %v", info, err)
	}
	n, err := sb.Copy(ctx, "/workspace/p", "/workspace/q", false)
	if ok(err); n != 7 {
		t.Errorf("%d copied", n)
	}
	_, err = sb.Chmod(ctx, api.ChangeMode{Path: "/workspace/q/src", Mode: "0700", Recursive: true})
	ok(err)
	_, err = sb.Chown(ctx, api.ChangeOwner{Path: "/workspace/q", Owner: "root", Recursive: true})
	ok(err)
	ok(sb.Symlink(ctx, "src/a.go", "/workspace/p/link"))
	if target, err := sb.Readlink(ctx, "/workspace/p/link"); err != nil || target != "src/a.go" {
		t.Errorf("%q %v", target, err)
	}
	if got := sh(t, sb, "sudo stat -c '%a %U' /workspace/q/src/deep/b.go; cat /workspace/p/link | wc -l"); got != "700 root\n4" {
		t.Errorf("%q", got)
	}
	glob, err := sb.Glob(ctx, api.Glob{Path: "/workspace/p", Pattern: "**/*.go"})
	if ok(err); len(glob.Matches) != 2 || glob.Matches[1].Path != "/workspace/p/src/deep/b.go" {
		t.Errorf("%+v", glob)
	}
	found, err := sb.Search(ctx, api.Search{Path: "/workspace/p", Pattern: `TODO \w+`, Context: 1})
	if ok(err); len(found.Matches) != 2 || found.Matches[0].Line != 1 || found.Matches[0].Column != 14 || len(found.Matches[1].Before) != 1 {
		t.Errorf("%+v", found)
	}
	done, err := sb.Replace(ctx, api.Replace{Path: "/workspace/p", Pattern: "TODO", Replacement: "DONE", Literal: true, DryRun: true})
	if ok(err); done.Count != 2 {
		t.Errorf("%+v", done)
	}
	done, err = sb.Replace(ctx, api.Replace{Path: "/workspace/p", Pattern: `TODO (\w+)`, Replacement: "DONE $1"})
	if ok(err); done.Count != 2 || sh(t, sb, "grep -rhI DONE /workspace/p/src | sort") != "// DONE two\npackage a // DONE one" {
		t.Errorf("%+v", done)
	}
	file, err := sb.OpenRange(ctx, "/workspace/p/src/a.go", 8, 6)
	ok(err)
	text, err := io.ReadAll(file)
	if file.Close(); err != nil || string(text) != "a // D" {
		t.Errorf("%q %v", text, err)
	}
	archive, err := sb.Archive(ctx, "/workspace/p")
	ok(err)
	into, err := sb.Extract(ctx, "/workspace/r", archive)
	archive.Close()
	if ok(err); into.Files != 7 {
		t.Errorf("%+v", into)
	}
	if got := sh(t, sb, "diff -r /workspace/p /workspace/r && echo same"); got != "same" {
		t.Error(got)
	}
	sameWithoutRipgrep(t, sb)
	badFiles(t, sb)
	signedURLs(t, sb)
}

// sameWithoutRipgrep searches with the program and without.
func sameWithoutRipgrep(t *testing.T, sb *client.Sandbox) {
	t.Helper()
	sh(t, sb, `mkdir -p /workspace/s/sub/.git /workspace/s/node_modules && cd /workspace/s && printf 'one\ntwo needle\nthree\nNeedle\r\nend' > a.txt
cp a.txt sub/b.go; cp a.txt .hidden; cp a.txt node_modules/c.go; cp a.txt sub/.git/d; printf 'caf\351 needle\n' > latin; printf 'needle\0' > bin
python3 -c 'print("x" * 3000000 + "needle")' > long; ln -s a.txt link; echo sub > .gitignore`)
	searches := []api.Search{
		{Pattern: "needle"}, {Pattern: "needle", Context: 1}, {Pattern: "NEEDLE", IgnoreCase: true, Context: 2},
		{Pattern: "n.e+dle$", Include: []string{"*.{go,txt}"}}, {Pattern: "needle", Exclude: []string{"sub"}},
		{Pattern: "needle", Include: []string{"sub/**"}}, {Pattern: "e.n(", Literal: true}, {Pattern: "o n", Literal: true, Exclude: []string{"*.go", "node_modules/"}},
	}
	run := func() (out []api.SearchResult) {
		for _, in := range searches {
			in.Path = "/workspace/s"
			got, err := sb.Search(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, got)
		}
		return out
	}
	// The daemon looks by itself where the program refuses how it is called.
	sh(t, sb, "cd /workspace/s && rg --json --no-config --no-messages --no-ignore --hidden --crlf --max-count 5 --threads 4 --ignore-case --context 1 --glob '!.git/' --regexp needle -- ./ > /dev/null")
	with := run()
	sh(t, sb, "test -x /usr/bin/rg && sudo mv /usr/bin/rg /usr/bin/rg.off")
	for i, without := range run() {
		a, _ := json.Marshal(with[i])
		b, _ := json.Marshal(without)
		if !bytes.Equal(a, b) {
			t.Errorf("%+v finds with ripgrep\n%.2000s\nand without\n%.2000s", searches[i], a, b)
		}
	}
	if len(with[0].Matches) == 0 {
		t.Error("nothing was found")
	}
}

// badFiles asks for what cannot be.
func badFiles(t *testing.T, sb *client.Sandbox) {
	ctx := t.Context()
	outside := func() error { _, err := sb.OpenRange(ctx, "/workspace/p/bin", 100, 5); return err }
	glob := func(p string) error { _, err := sb.Glob(ctx, api.Glob{Path: p, Pattern: "*"}); return err }
	cp := func(from, to string) error { _, err := sb.Copy(ctx, from, to, false); return err }
	pack := func(path, body string) error { _, err := sb.Extract(ctx, path, strings.NewReader(body)); return err }
	for name, c := range map[string]struct {
		err  error
		code api.Code
	}{
		"range":         {outside(), api.CodeInvalidRequest},
		"glob none":     {glob("/none"), api.CodeFileNotFound},
		"glob file":     {glob("/workspace/p/bin"), api.CodeFileNotDirectory},
		"copy none":     {cp("/none", "/workspace/x"), api.CodeFileNotFound},
		"copy inside":   {cp("/workspace/p", "/workspace/p/p"), api.CodeFileInvalidPath},
		"copy over":     {cp("/workspace/p/bin", "/workspace/p/atomic"), api.CodeFileExists},
		"not UTF-8":     {sb.Files.WriteFile(ctx, "/workspace/caf\xe9", nil), api.CodeFileInvalidPath},
		"bad archive":   {pack("/workspace/z", strings.Repeat("no archive ", 100)), api.CodeFileInvalidPath},
		"into a file":   {sb.Files.WriteFile(ctx, "/workspace/p/bin/x", nil), api.CodeFileNotDirectory},
		"a directory":   {sb.Files.WriteFile(ctx, "/workspace/p", nil), api.CodeFileIsDirectory},
		"link is there": {sb.Symlink(ctx, "x", "/workspace/p/link"), api.CodeFileExists},
	} {
		if code := api.CodeOf(c.err); c.err == nil || code != c.code {
			t.Errorf("%s: %v, want %s", name, c.err, c.code)
		}
	}
}

func signedURLs(t *testing.T, sb *client.Sandbox) {
	do := func(method, url, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	sign := func(op string, seconds int) string {
		t.Helper()
		s, err := sb.Sign(t.Context(), api.SignFile{Path: "/workspace/signed", Operation: op, ExpiresSeconds: seconds})
		if err != nil {
			t.Fatal(err)
		}
		return s.URL
	}
	read, write := sign("read", 60), sign("write", 60)
	if code, text := do("PUT", write, "by URL"); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := do("GET", read, ""); code != 200 || text != "by URL" {
		t.Errorf("%d %s", code, text)
	}
	for name, c := range map[string][2]string{"read by write": {"GET", write}, "write by read": {"PUT", read}, "changed": {"GET", read[:len(read)-4] + "AAAA"}} {
		if code, text := do(c[0], c[1], "x"); code != 401 {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	short := sign("read", 1)
	time.Sleep(2100 * time.Millisecond)
	if code, _ := do("GET", short, ""); code != 401 {
		t.Errorf("an expired URL gives %d", code)
	}
}

// TestWatchBurst makes ten thousand changes as fast as a shell can.
func TestWatchBurst(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := sb.MkdirAll(ctx, "/workspace/w"); err != nil {
		t.Fatal(err)
	}
	w, err := sb.Watch(ctx, "/workspace/w", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	go sb.Shell(ctx, `python3 -c 'import os
for d in range(10):
    os.makedirs(f"/workspace/w/d{d}/x")
    for i in range(1000): open(f"/workspace/w/d{d}/x/{i}", "w").close()
os.rename("/workspace/w/d0", "/workspace/w/end")'`)
	seen := map[string]bool{}
	for ev, err := range w.All() {
		if err != nil {
			t.Fatalf("after %d events: %v", len(seen), err)
		}
		if ev.Type == api.FileOverflow {
			t.Logf("overflow after %d files", len(seen))
			return
		}
		seen[ev.Path] = true
		if ev.Type == api.FileCreate && ev.Path == "/workspace/w/end" {
			break
		}
	}
	for d := range 10 {
		for i := range 1000 {
			if p := fmt.Sprintf("/workspace/w/d%d/x/%d", d, i); !seen[p] {
				t.Fatalf("%s was missed, and nothing said so", p)
			}
		}
	}
}

// TestTransferSpeed moves a file up and down and compares with what the
// sandbox's own disk does.
func TestTransferSpeed(t *testing.T) {
	t.Parallel()
	sb := create(t, sharedServer(t), api.CreateSandbox{})
	const size = 256 << 20
	data := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(data)
	sum := sha256.New()
	body := func() io.Reader {
		return io.TeeReader(io.LimitReader(&repeat{data: data}, size), sum)
	}
	rate := func(start time.Time) float64 { return size / 1e6 / time.Since(start).Seconds() }
	start := time.Now()
	if err := sb.Files.Upload(t.Context(), "/workspace/big", io.LimitReader(&repeat{data: data}, size)); err != nil {
		t.Fatal(err)
	}
	up := rate(start)
	start = time.Now()
	f, err := sb.Open(t.Context(), "/workspace/big")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := io.Copy(io.Discard, f); n != size || err != nil {
		t.Fatal(n, err)
	}
	down := rate(start)
	start = time.Now()
	sh(t, sb, "dd if=/dev/zero of=/workspace/dd bs=1M count=256 2>/dev/null")
	write := rate(start)
	start = time.Now()
	sh(t, sb, "dd if=/workspace/big of=/dev/null bs=1M 2>/dev/null")
	t.Logf("up %.0f MB/s, down %.0f MB/s; dd inside: write %.0f, read %.0f", up, down, write, rate(start))
	if _, err := io.Copy(io.Discard, body()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, sb, "sha256sum < /workspace/big | cut -d' ' -f1"); got != fmt.Sprintf("%x", sum.Sum(nil)) {
		t.Error("what arrived is not what was sent")
	}
}

// repeat gives the same bytes again and again.
type repeat struct {
	data []byte
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.data[r.at:])
	r.at = (r.at + n) % len(r.data)
	return n, nil
}

// TestCopyResumes breaks transfers off in both directions and goes on.
func TestCopyResumes(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	dir := t.TempDir()
	local := filepath.Join(dir, "big")
	data := make([]byte, 24<<20)
	rand.NewChaCha8([32]byte{2}).Read(data)
	if err := os.WriteFile(local, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cut := newCutter(t, s.addr)
	start := func(from, to string) (*exec.Cmd, *bytes.Buffer) {
		cmd := program("sandbox", "cp", from, to)
		cmd.Env = append(os.Environ(), "PANDASTACK_API="+cut.url, "PANDASTACK_API_KEY="+s.key)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	back := filepath.Join(dir, "back")
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	size := int64(len(data))
	for _, way := range []struct{ from, to, whole string }{
		{local, sb.ID + ":/workspace/big", "sha256sum < /workspace/big | cut -d' ' -f1"},
		{sb.ID + ":/workspace/big", back, ""},
	} {
		// A run that is killed, and one whose connections break: it goes on from
		// where the first one was.
		before := cut.moved.Load()
		cut.after(0, 0)
		cmd, _ := start(way.from, way.to)
		for cut.moved.Load() < before+8<<20 {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		time.Sleep(time.Second) // what is on its way arrives
		before = cut.moved.Load()
		cut.after(4<<20, 2)
		cmd, out := start(way.from, way.to)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if moved := cut.moved.Load() - before; moved > size*9/10 {
			t.Errorf("%s: the second run moved %d bytes of %d", way.to, moved, size)
		}
		if way.whole != "" && sh(t, sb, way.whole) != sum {
			t.Errorf("%s: not the same bytes", way.to)
		}
	}
	if got := sh(t, sb, "stat -c %a /workspace/big; ls -A /workspace"); got != "755\nbig" {
		t.Errorf("%q", got)
	}
	got, err := os.ReadFile(back)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%v", left)
	}
}
