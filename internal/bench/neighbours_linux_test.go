package bench

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// smallImage makes an EROFS image in which the measured commands run.
func smallImage(t *testing.T) string {
	t.Helper()
	const busybox = "/bin/busybox"
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: containers need root")
	}
	if _, err := os.Stat(busybox); err != nil {
		t.Skipf("SKIPPED: the image needs %s (apt-get install busybox-static)", busybox)
	}
	if _, err := exec.LookPath("mkfs.erofs"); err != nil {
		t.Skip("SKIPPED: the image needs mkfs.erofs (apt-get install erofs-utils)")
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, d := range []string{"bin", "dev", "etc", "proc", "run", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "true", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(dir, "root.erofs")
	if out, err := exec.Command("mkfs.erofs", "-Enoinline_data", image, root).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.erofs: %v\n%s", err, out)
	}
	return image
}

// nothingLeft checks that a run removed what it made; pid is the process it ran in.
func nothingLeft(t *testing.T, pid int, work, image string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(work, "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	if left := cgroupDirs(cgroupPrefix + strconv.Itoa(pid)); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
	if strings.Contains(read("/proc/self/mounts"), work) {
		t.Errorf("mounts are left in %s", work)
	}
	if left := loopsOf(image); len(left) > 0 {
		t.Errorf("loop devices still have the image: %v", left)
	}
}

// TestNeighbours also checks that a run leaves nothing, so its parts take turns.
func TestNeighbours(t *testing.T) {
	image := smallImage(t)
	t.Run("missing programs are in the report", func(t *testing.T) {
		work := t.TempDir()
		results, err := Neighbours(t.Context(), NeighbourOptions{Image: image, Runsc: "/does/not/exist/runsc", N: 1, WorkDir: work})
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 8 {
			t.Errorf("%d results, want 8", len(results))
		}
		for _, r := range results {
			if strings.HasPrefix(r.What, "runsc") && (r.Errors != 1 || !strings.Contains(r.FirstErr, "scripts/bench.sh") || r.N != 0) {
				t.Errorf("%s without runsc: %+v", r.What, r)
			}
			if strings.HasPrefix(r.What, "process") && (r.N != 1 || r.P50 <= 0) {
				t.Errorf("a process could not be measured: %+v", r)
			}
		}
		nothingLeft(t, os.Getpid(), work, image)
	})
	t.Run("podman", func(t *testing.T) {
		if _, err := exec.LookPath("podman"); err != nil {
			t.Skip("SKIPPED: podman is not installed (apt-get install podman)")
		}
		work := t.TempDir()
		results, err := Neighbours(t.Context(), NeighbourOptions{Image: image, N: 2, WorkDir: work})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if strings.HasPrefix(r.What, "podman") && (r.Errors > 0 || r.N != 2 || r.P50 <= 0) {
				t.Errorf("%+v", r)
			}
		}
		nothingLeft(t, os.Getpid(), work, image)
	})
	t.Run("runc", func(t *testing.T) {
		if _, err := exec.LookPath("runc"); err != nil {
			t.Skip("SKIPPED: runc is not installed (apt-get install runc)")
		}
		work := t.TempDir()
		results, err := Neighbours(t.Context(), NeighbourOptions{Image: image, N: 2, WorkDir: work, Progress: t.Output()})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if strings.HasPrefix(r.What, "runc") && (r.Errors > 0 || r.N != 2 || r.P50 <= 0) {
				t.Errorf("%+v", r)
			}
		}
		nothingLeft(t, os.Getpid(), work, image)
	})
	t.Run("stopped in the middle", func(t *testing.T) {
		work := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		_, err := Neighbours(ctx, NeighbourOptions{Image: image, N: 1e6, WorkDir: work})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that it was cancelled", err)
		}
		nothingLeft(t, os.Getpid(), work, image)
	})
	t.Run("no image", func(t *testing.T) {
		work := t.TempDir()
		if _, err := Neighbours(t.Context(), NeighbourOptions{Image: filepath.Join(work, "none"), N: 1, WorkDir: work}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v, want that the image does not exist", err)
		}
		text := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(text, []byte("no file system"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Neighbours(t.Context(), NeighbourOptions{Image: text, N: 1, WorkDir: work}); err == nil || !strings.Contains(err.Error(), "mount") {
			t.Errorf("error %v, want that of mount", err)
		}
		nothingLeft(t, os.Getpid(), work, image)
	})
}

// TestNeighboursStockRunsc measures the runsc that RUNSC names, which takes
// minutes to build and so is not made here.
func TestNeighboursStockRunsc(t *testing.T) {
	runsc := os.Getenv("RUNSC")
	if runsc == "" {
		t.Skip("SKIPPED: RUNSC does not name a stock runsc (scripts/bench.sh builds one)")
	}
	image := smallImage(t)
	work := t.TempDir()
	results, err := Neighbours(t.Context(), NeighbourOptions{Image: image, Runsc: runsc, N: 2, WorkDir: work, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Logf("%+v", r)
		if strings.HasPrefix(r.What, "runsc") && (r.Errors > 0 || r.N != 2 || r.P50 <= 0) {
			t.Errorf("%+v", r)
		}
	}
	nothingLeft(t, os.Getpid(), work, image)
}

// playNeighbours measures until it is killed.
func playNeighbours(image, work string) {
	_, err := Neighbours(context.Background(), NeighbourOptions{Image: image, N: 1e6, WorkDir: work, Progress: os.Stdout})
	os.Stderr.WriteString(err.Error())
}

// TestNeighboursKilled kills a run without warning. Its processes and mounts go
// with it.
func TestNeighboursKilled(t *testing.T) {
	image := smallImage(t)
	work := t.TempDir()
	cmd := exec.Command(os.Args[0], "neighbours", image, work)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "round 11 ") {
		t.Log(lines.Text())
	}
	if got := loopsOf(image); len(got) != 1 {
		t.Errorf("loop devices of the image while it runs: %v, want one", got)
	}
	if strings.Contains(read("/proc/self/mounts"), work) {
		t.Error("the mounts are visible outside")
	}
	cmd.Process.Kill()
	cmd.Wait()
	gone := func() bool { return len(loopsOf(image)) == 0 && len(commandsWith(work)) == 0 }
	for end := time.Now().Add(20 * time.Second); !gone() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if !gone() {
		t.Errorf("left: loop devices %v, processes %v", loopsOf(image), commandsWith(work))
	}
	dirs, _ := filepath.Glob(filepath.Join(work, "*"))
	if len(dirs) != 1 || os.Remove(dirs[0]) != nil {
		t.Errorf("left: %v, want one empty directory", dirs)
	}
	sweepCgroups() // as the next run does
	nothingLeft(t, cmd.Process.Pid, work, image)
}

// loopsOf lists the loop devices that have a file.
func loopsOf(file string) (found []string) {
	all, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range all {
		if strings.HasPrefix(read(f), file) {
			found = append(found, f)
		}
	}
	return found
}

// commandsWith lists the other processes whose command line has s.
func commandsWith(s string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		if line := read(f); strings.Contains(line, s) {
			found = append(found, strings.ReplaceAll(line, "\x00", " "))
		}
	}
	return found
}
