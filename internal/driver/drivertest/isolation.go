package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

func (s *suite) testIsolation(t *testing.T) {
	secret := filepath.Join(s.Dir(t), "host-secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	a, b := s.start(t, s.spec(t)), s.start(t, s.spec(t))
	a.background(t, "exec -a needle-of-a sleep 1000 2>/dev/null || exec sleep 1000")
	b.background(t, "sleep 2000")
	if ps := b.sh(t, "ps"); strings.Contains(ps, "needle-of-a") || strings.Contains(ps, "sleep 1000") {
		t.Errorf("one machine sees another's processes:\n%s", ps)
	}
	self := filepath.Base(os.Args[0])
	if ps := a.sh(t, "ps; cat /proc/*/cmdline | tr '\\0' ' '"); strings.Contains(ps, self) || strings.Contains(ps, "runsc") {
		t.Errorf("a machine sees the host's processes:\n%s", ps)
	}
	for _, path := range []string{secret, "/proc/1/root" + secret, "/proc/self/root" + secret, "/../../../.." + secret} {
		if _, code, err := a.run(t.Context(), "cat "+path); err != nil || code == 0 {
			t.Errorf("a machine reads the host's %s (exit %d, %v)", path, code, err)
		}
	}
	env := a.sh(t, "cat /proc/1/environ | tr '\\0' '\\n'; env")
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if len(value) > 8 && strings.Contains(env, value) && !slices.Contains([]string{"PATH", "HOME"}, name) {
			t.Errorf("the host's environment variable %s is seen inside", name)
		}
	}
	if got := a.sh(t, "find / -xdev -name 'upper' -o -xdev -name 'console.log' 2>/dev/null | head"); got != "" {
		t.Errorf("files of the runtime are seen inside: %s", got)
	}
}

// testHostDisk tries to make a machine's files on the host grow past its disk.
func (s *suite) testHostDisk(t *testing.T) {
	spec := s.spec(t)
	b := s.start(t, spec)
	for _, fd := range []string{"0", "1", "2"} {
		b.run(t.Context(), "dd if=/dev/zero of=/proc/1/fd/"+fd+" bs=1M count=8")
	}
	u, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var used int64
	err = filepath.WalkDir(spec.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		used += int64(st.Blocks) * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if extra := used - u.DiskBytes; extra > 4<<20 {
		t.Errorf("the machine made %d bytes on the host that its disk does not count", extra)
	}
}

func (s *suite) testLimits(t *testing.T) {
	t.Run("Disk", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		out, code, err := b.run(t.Context(), "dd if=/dev/zero of=/fill bs=1M count=200")
		if err != nil || code == 0 {
			t.Errorf("writing 200 MiB to a disk of 64: exit %d, %v, %s", code, err, out)
		}
		b.sh(t, "rm /fill && echo room > /again")
	})
	t.Run("DiskOnTmp", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		if _, code, err := b.run(t.Context(), "dd if=/dev/zero of=/tmp/fill bs=1M count=200"); err != nil || code == 0 {
			t.Errorf("writing 200 MiB to /tmp with a disk of 64: exit %d, %v", code, err)
		}
	})
	t.Run("Memory", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		exits := b.watch(ctx)
		// tail keeps a line without an end in memory.
		out, code, err := b.run(ctx, "head -c 1500000000 /dev/zero | tail >/dev/null")
		if err == nil && code == 0 {
			t.Errorf("1.5 GB were held in a machine with 256 MiB: %s", out)
		}
		if u, err := b.Usage(t.Context()); err == nil && u.MemoryBytes > Limits.MemoryBytes {
			t.Errorf("Usage.MemoryBytes = %d, over the limit", u.MemoryBytes)
		} else if err != nil {
			// The whole machine ended: then Wait must say why, and nobody
			// may be left waiting for an answer of it.
			if exit := <-exits; !strings.Contains(exit.Reason, "memory") {
				t.Errorf("Wait after the memory limit = %+v", exit)
			}
			if ctx.Err() != nil {
				t.Error("a connection of the machine that ended was not cut")
			}
		}
	})
	t.Run("CPU", func(t *testing.T) {
		spec := s.spec(t)
		spec.Limits.CPU = 0.25
		b := s.start(t, spec)
		b.background(t, "while :; do :; done")
		b.background(t, "while :; do :; done")
		first, err := b.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		time.Sleep(3 * time.Second)
		then, err := b.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if used, most := then.CPU-first.CPU, time.Since(from)/2; used > most {
			t.Errorf("a machine with a quarter of a CPU used %v in %v", used, time.Since(from))
		}
	})
	t.Run("Tasks", func(t *testing.T) {
		spec := s.spec(t)
		spec.Limits.Tasks = 200
		b := s.start(t, spec)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.watch(ctx)
		b.run(ctx, "i=0; while [ $i -lt 500 ]; do sleep 30 >/dev/null 2>&1 & i=$((i+1)); done 2>/dev/null")
		if u, err := b.Usage(t.Context()); err == nil && u.Tasks > 200 {
			t.Errorf("%d tasks in a machine with 200", u.Tasks)
		}
	})
}

// testFailedStart breaks each thing that a start needs, and ends contexts at
// moments spread over it: every time nothing may be left.
func (s *suite) testFailedStart(t *testing.T) {
	before := s.Leftovers()
	check := func(t *testing.T) {
		t.Helper()
		if left := s.Leftovers(); !slices.Equal(left, before) {
			t.Errorf("left behind by a failed start: %v, before %v", left, before)
		}
	}
	garbage := filepath.Join(s.Dir(t), "garbage.erofs")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a filesystem", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*driver.Spec){
		"NoImage":      func(spec *driver.Spec) { spec.Image.Path = "/nonexistent" },
		"GarbageImage": func(spec *driver.Spec) { spec.Image.Path = garbage },
		"NoNamespace":  func(spec *driver.Spec) { spec.Network.Namespace = "/nonexistent" },
		"NoInterface":  func(spec *driver.Spec) { spec.Network.Interface = "none9" },
		"NoSnapshot":   func(spec *driver.Spec) { spec.Snapshot = "/nonexistent" },
		"NoDirectory":  func(spec *driver.Spec) { spec.Dir = "/nonexistent/dir" },
	} {
		t.Run(name, func(t *testing.T) {
			spec := s.spec(t)
			spoil(&spec)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			m, err := s.d.Start(ctx, spec)
			if err == nil {
				m.Stop(t.Context())
				t.Fatal("Start succeeds")
			}
			if api.CodeOf(err) == api.CodeInternal {
				t.Errorf("the error has no code: %v", err)
			}
			check(t)
		})
	}
	t.Run("Canceled", func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 15 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 80 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			m, err := s.d.Start(ctx, s.spec(t))
			cancel()
			if err == nil {
				m.Stop(t.Context())
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("canceled after %v: %v", after, err)
			}
			check(t)
		}
	})
}

func (s *suite) testSweep(t *testing.T) {
	keep, lose := s.start(t, s.spec(t)), s.start(t, s.spec(t))
	if err := s.New(t).Sweep(t.Context(), []driver.Handle{keep.Handle()}); err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	if got := keep.sh(t, "echo alive"); got != "alive" {
		t.Errorf("a kept machine answers %q after Sweep", got)
	}
	if _, err := s.New(t).Attach(t.Context(), lose.Handle()); err == nil {
		t.Error("a machine that Sweep should have ended still runs")
	}
	if err := keep.Stop(t.Context()); err != nil {
		t.Errorf("Stop after Sweep: %v", err)
	}
}
