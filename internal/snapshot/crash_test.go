package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

// childVariable turns the test binary into a process that takes a snapshot
// through its whole life and kills itself at one point of it.
const childVariable = "SNAPSHOT_TEST_CHILD"

type childSetting struct{ Dir, Blobs, Point string }

// childMain ends with SIGKILL, or with status 3 when it never came to its point.
func childMain() {
	var set childSetting
	err := json.Unmarshal([]byte(os.Getenv(childVariable)), &set)
	if err == nil {
		err = set.life(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the child was not killed:", err)
	os.Exit(3)
}

var (
	baseFiles = map[string][]byte{"f": noise(1, 1<<20), "state": []byte("base")}
	lifeFiles = map[string][]byte{"f": noise(1, 1<<20), "g": noise(2, 1<<20)}
)

// lifePoints are the points of a life, in their order. A snapshot is whole from
// the first of kept to the first of deleted.
var lifePoints = points("keep.record", "keep.sync", "keep.rename", "pack.pack", "pack.manifest", "pack.note", "evict.remove",
	"delete.note", "delete.remove", "collect.manifest", "collect.note", "collect.mark", "collect.remove", "collect.unmark")

func points(steps ...string) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s+".before", s+".after")
	}
	return out
}

func (set childSetting) life(ctx context.Context) error {
	dir, err := blob.NewDir(set.Blobs)
	if err != nil {
		return err
	}
	blobs := newClocked(dir)
	s, err := Open(ctx, Config{Dir: set.Dir, Blobs: blobs, CacheBytes: 1, Fault: func(point string) error {
		if point == set.Point {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}})
	if err != nil {
		return err
	}
	if _, err := tryKeep(ctx, s, "a", lifeFiles); err != nil {
		return err
	}
	if _, err := s.Pack(ctx, "a"); err != nil {
		return err
	}
	if err := s.evict(ctx); err != nil {
		return err
	}
	if err := s.Delete(ctx, "a"); err != nil {
		return err
	}
	for range 4 {
		if _, err := s.Collect(ctx); err != nil {
			return err
		}
		blobs.advance(s.cfg.Grace)
	}
	return errors.New("its life is over")
}

// die runs the child until it has killed itself.
func (set childSetting) die(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(data))
	out, err := cmd.CombinedOutput()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v instead of killing itself at %s:\n%s", err, set.Point, out)
	}
}

// TestKillAtEveryStep kills a process at each step of a snapshot's life. The next
// one finds the snapshot whole or not at all, another that shares its chunks
// unharmed, and in the end nothing left of the first.
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	whole := lifePoints[slices.Index(lifePoints, "keep.rename.after"):slices.Index(lifePoints, "delete.note.after")]
	for _, point := range lifePoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			set := childSetting{Dir: t.TempDir(), Blobs: filepath.Join(t.TempDir(), "blobs"), Point: point}
			dir, err := blob.NewDir(set.Blobs)
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, set.Dir, dir)
			keep(t, s, "base", baseFiles)
			pack(t, s, "base")
			evictAll(t, s)
			before := keysOf(t, dir, "")

			set.die(t)
			blobs := newClocked(dir)
			s = open(t, set.Dir, blobs)
			if slices.Contains(whole, point) {
				check(t, s, "a", lifeFiles)
				pack(t, s, "a")
				evictAll(t, s)
				check(t, s, "a", lifeFiles)
			} else {
				src, err := s.Open(t.Context(), "a")
				if wantCode(t, err, api.CodeSnapshotNotFound); err == nil {
					src.Close()
				}
			}
			check(t, s, "base", baseFiles)
			if err := s.Delete(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			for range 4 {
				collect(t, s)
				blobs.advance(s.cfg.Grace)
			}
			check(t, s, "base", baseFiles)
			after := slices.DeleteFunc(keysOf(t, dir, ""), func(key string) bool { return strings.HasSuffix(key, "/clock") })
			if !slices.Equal(after, before) {
				t.Errorf("the blob store has %v, want %v", after, before)
			}
			for _, dir := range []string{stagingDir, rawDir, deletedDir, tmpDir} {
				if got := filesIn(t, s, dir); len(got) != 0 {
					t.Errorf("%s has %v", dir, got)
				}
			}
			if got := filesIn(t, s, localDir); len(got) != 1 {
				t.Errorf("local has %v", got)
			}
			if err := dir.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFailAtEveryStep lets each step fail instead. The same process then goes on.
func TestFailAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, point := range lifePoints {
		blobs := newClocked(blob.NewMemory())
		failing := true
		s := open(t, t.TempDir(), blobs, withCache(1), func(c *Config) {
			c.Fault = func(at string) error {
				if failing && at == point {
					failing = false
					return errors.New("a fault at " + at)
				}
				return nil
			}
		})
		var failed []error
		try := func(do func() error) {
			if err := do(); err != nil {
				if failed = append(failed, err); !strings.Contains(err.Error(), point) {
					t.Errorf("%s: %v", point, err)
				}
				if err := do(); err != nil {
					t.Errorf("%s: the second time: %v", point, err)
				}
			}
		}
		try(func() error {
			if err := s.Discard("a"); err != nil {
				return err
			}
			_, err := tryKeep(t.Context(), s, "a", lifeFiles)
			return err
		})
		check(t, s, "a", lifeFiles)
		try(func() error { _, err := s.Pack(t.Context(), "a"); return err })
		try(func() error { return s.evict(t.Context()) })
		check(t, s, "a", lifeFiles)
		try(func() error { return s.Delete(t.Context(), "a") })
		for range 4 {
			try(func() error { _, err := s.Collect(t.Context()); return err })
			blobs.advance(s.cfg.Grace)
		}
		if len(failed) != 1 {
			t.Errorf("%s: it failed %d times", point, len(failed))
		}
		for _, key := range keysOf(t, blobs, "") {
			if !strings.HasSuffix(key, "/clock") {
				t.Errorf("%s: the blob store has %s", point, key)
			}
		}
		s = open(t, s.cfg.Dir, blobs)
		for range 4 {
			collect(t, s)
			blobs.advance(s.cfg.Grace)
		}
		for _, dir := range []string{rawDir, localDir, deletedDir, tmpDir} {
			if got := filesIn(t, s, dir); len(got) != 0 {
				t.Errorf("%s: %s has %v", point, dir, got)
			}
		}
	}
}

// TestTornRecordIsLeftAlone: a record that cannot be read costs its own snapshot
// only, and is not removed.
func TestTornRecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, nil)
	keep(t, s, "a", lifeFiles)
	keep(t, s, "b", baseFiles)
	path := s.path(rawDir, s.snaps["a"].name(), recordFile)
	if err := os.WriteFile(path, []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, nil)
	check(t, s, "b", baseFiles)
	if data, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(data, []byte(`{"ver`)) {
		t.Errorf("the record is gone: %v", err)
	}
}
