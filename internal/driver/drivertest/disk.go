package drivertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// makeDisk changes the disk in every way that a saved one has to keep.
const makeDisk = `set -e
mkdir -p /d/e && echo deep > /d/e/f && chmod 2750 /d/e && chown 1000:1000 /d/e/f
echo private > /p && chmod 4711 /p && touch -d @1000000000 /p
ln -s ../p /d/link && ln /p /hard
rm /etc/passwd && rm -r /workspace && mkdir /workspace && echo new > /workspace/inside
rm -r /home && mv /root /root2 && mkfifo /fifo
printf 'a\n' > '/d/with space and ü'
head -c 20000000 /dev/urandom > /big
echo temp > /tmp/t
`

// lookDisk prints what makeDisk made.
const lookDisk = `cat /d/e/f /p /hard /workspace/inside "/d/with space and ü" /tmp/t
stat -c '%n %a %u:%g %F %h' /d/e /d/e/f /p /d/link /fifo
stat -c %Y /p
readlink /d/link
[ /p -ef /hard ] && echo linked
ls /home /root /etc/passwd 2>/dev/null
ls -A /workspace
md5sum < /big
`

// testDisk saves disks and starts machines from them.
func (s *suite) testDisk(t *testing.T) {
	parent := s.start(t, s.spec(t))
	parent.become(t, "disk", api.BootCold)
	parent.sh(t, makeDisk)
	want := parent.sh(t, lookDisk)
	parent.background(t, "i=0; while :; do i=$((i+1)); echo $i >> /growing; done")
	save := func(t *testing.T, b *box) string {
		t.Helper()
		path := filepath.Join(s.Dir(t), "disk-"+api.NewID())
		t.Cleanup(func() { os.Remove(path) })
		if err := b.SaveDisk(t.Context(), path); err != nil {
			t.Fatalf("SaveDisk: %v", err)
		}
		return path
	}
	disk := save(t, parent)
	if info, err := os.Stat(disk); err != nil || info.Mode() != 0o600 {
		t.Errorf("a saved disk has mode %v, %v", info.Mode(), err)
	}
	was := parent.sh(t, "wc -l < /growing")
	eventually(t, "the source goes on", func() bool { return parent.sh(t, "wc -l < /growing") != was })

	t.Run("RoundTrip", func(t *testing.T) {
		spec := s.spec(t)
		spec.Disk = disk
		b := s.start(t, spec)
		if b.Boot().Restored {
			t.Error("a start from a disk says that it restored memory")
		}
		if got := b.sh(t, lookDisk); got != want {
			t.Errorf("the disk came back as\n%s\nand was\n%s", got, want)
		}
		if got := b.sh(t, "ls /.pandastack"); got != "guest" {
			t.Errorf("the guest program's place holds %q", got)
		}
		b.sh(t, "rm /big && echo more > /more")
		// A second generation, and a snapshot of a machine that began from a disk.
		again := s.spec(t)
		again.Disk = save(t, b)
		if got := s.start(t, again).sh(t, "cat /more /p; ls /big 2>/dev/null; true"); got != "more\nprivate" {
			t.Errorf("the disk of the second machine holds %q", got)
		}
		if s.caps.Snapshot {
			warm := s.spec(t)
			warm.Snapshot = s.snapshot(t, b)
			if got := s.start(t, warm).sh(t, "cat /more"); got != "more" {
				t.Errorf("the snapshot of a machine that began from a disk holds %q", got)
			}
		}
	})
	t.Run("ExistingFile", func(t *testing.T) { wantCode(t, parent.SaveDisk(t.Context(), disk), api.CodeInvalidRequest) })
	t.Run("DiskFull", func(t *testing.T) {
		path := filepath.Join(s.Small(t), "disk")
		wantCode(t, parent.SaveDisk(t.Context(), path), api.CodeCapacity)
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("a disk that was not saved left its file: %v", err)
		}
		parent.sh(t, "true")
	})
	t.Run("LargerThanMemory", func(t *testing.T) {
		spec := s.spec(t)
		spec.Limits.MemoryBytes, spec.Limits.DiskBytes = 112<<20, 200<<20
		b := s.start(t, spec)
		b.become(t, "large", api.BootCold)
		b.sh(t, "head -c 100000000 /dev/urandom > /large")
		sum := b.sh(t, "md5sum < /large")
		again := s.spec(t)
		again.Limits, again.Disk = spec.Limits, save(t, b)
		b.sh(t, "true")
		c := s.start(t, again)
		if got := c.sh(t, "md5sum < /large"); got != sum {
			t.Errorf("a large file came back as another: %s, not %s", got, sum)
		}
		if u, err := c.Usage(t.Context()); err != nil || u.MemoryBytes > 100<<20 {
			t.Errorf("a machine keeps the memory that reading its disk took: %+v, %v", u, err)
		}
	})
	t.Run("Holes", func(t *testing.T) {
		b := s.start(t, s.spec(t))
		b.become(t, "holes", api.BootCold)
		b.sh(t, "truncate -s 100M /holes && echo kept > /kept")
		path := filepath.Join(s.Dir(t), "holes")
		err := b.SaveDisk(t.Context(), path)
		if err == nil {
			spec := s.spec(t)
			spec.Disk = path
			if got := s.start(t, spec).sh(t, "cat /kept; stat -c %s /holes"); got != "kept\n104857600" {
				t.Errorf("a disk with holes came back as %q", got)
			}
		} else {
			wantCode(t, err, api.CodeUnsupported)
		}
		b.sh(t, "true")
	})
	t.Run("Garbage", func(t *testing.T) {
		spec := s.spec(t)
		spec.Disk = filepath.Join(s.Dir(t), "garbage")
		if err := os.WriteFile(spec.Disk, []byte("no disk at all"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := s.Leftovers()
		m, err := s.d.Start(t.Context(), spec)
		if err == nil {
			m.Stop(t.Context())
		}
		wantCode(t, err, api.CodeBootFailed, api.CodeSnapshotCorrupt)
		if left := s.Leftovers(); len(left) > len(before) {
			t.Errorf("left behind: %v, before %v", left, before)
		}
	})
}
