// Package imagetest makes what tests of real sandboxes start from: the smallest
// root filesystem that has a shell, and the guest program built from source.
package imagetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// busybox is one static program that is a shell and its tools.
const busybox = "/bin/busybox"

// Need skips a test, loudly, where real sandboxes cannot run.
func Need(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root")
	}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}) {
		t.Skip("SKIPPED: real sandboxes run this binary again in an empty root, where only a static one starts: test with CGO_ENABLED=0")
	}
	if _, err := os.Stat(busybox); err != nil {
		t.Skipf("SKIPPED: real sandboxes need %s (package busybox-static): %v", busybox, err)
	}
}

// Root makes a root filesystem in dir, with the users root and user.
func Root(dir string) error {
	for _, d := range []string{"bin", "dev", "etc", "home/user", "proc", "root", "sys", "tmp", "usr/bin", "var/tmp", "workspace"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	for name, data := range map[string]string{
		"bin/busybox":     string(program),
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"etc/group":       "root:x:0:\nuser:x:1000:\n",
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/hostname":    "sandbox\n",
		"etc/resolv.conf": "",
		"etc/machine-id":  "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o755); err != nil {
			return err
		}
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("list what busybox can do: %w", err)
	}
	for _, name := range strings.Fields(string(applets)) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(filepath.Join(dir, "root"), 0o700), os.Chown(filepath.Join(dir, "home/user"), 1000, 1000))
}

// Guest builds the guest program at path, so that a test does not depend on
// what an earlier build embedded.
func Guest(path string) error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/pandastack/pandastack/cmd/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest program: %w\n%s", err, out)
	}
	return nil
}
