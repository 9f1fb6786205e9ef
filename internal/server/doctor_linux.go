package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/guest/guestbin"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/image"
)

// Doctor looks at this machine without changing it.
func Doctor(ctx context.Context, cfg Config) []Check {
	cfg, err := cfg.complete()
	if err != nil {
		return []Check{{Name: "configuration", Required: true, Detail: err.Error(), Fix: "Correct the setting."}}
	}
	checks := []Check{checkRoot(), checkSystem(), checkGVisor(ctx, cfg), checkGuest()}
	checks = append(checks, checkBase(ctx, cfg)...)
	checks = append(checks, checkSpace(cfg), checkMemory())
	network := hostnet.New(hostnet.Config{Owner: ownerOf(cfg.DataDir)}, slog.New(slog.DiscardHandler))
	for _, c := range network.Checks(ctx) {
		checks = append(checks, Check{Name: "network: " + c.Name, OK: c.OK && !c.Warning, Required: !c.Warning, Detail: c.Detail})
	}
	return checks
}

func checkRoot() Check {
	c := Check{Name: "root", Required: true, OK: os.Geteuid() == 0, Detail: fmt.Sprintf("user id %d", os.Geteuid())}
	if !c.OK {
		c.Fix = "Run it with sudo: namespaces, mounts and cgroups need root. Sandboxed code never runs as root of the host."
	}
	return c
}

func checkSystem() Check {
	var u unix.Utsname
	unix.Uname(&u)
	return Check{Name: "system", OK: true, Required: true, Detail: fmt.Sprintf("Linux %s on %s, %d CPUs", unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.NumCPU())}
}

func checkGVisor(ctx context.Context, cfg Config) Check {
	c := Check{Name: "driver gvisor", Required: true}
	d, err := gvisor.New(gvisor.Config{StateDir: cfg.path("gvisor")})
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	p := d.Probe(ctx)
	c.OK, c.Detail = p.Usable, p.Reason
	return c
}

func checkGuest() Check {
	c := Check{Name: "guest program", Required: true, OK: true}
	b, err := guestbin.Binary()
	if err != nil {
		return Check{Name: c.Name, Required: true, Detail: "this binary was built without it", Fix: "Build with `make build`."}
	}
	c.Detail = fmt.Sprintf("%.1f MB, in this binary", float64(len(b))/1e6)
	return c
}

// checkBase looks for the base image, or else for what makes it.
func checkBase(ctx context.Context, cfg Config) []Check {
	images := image.NewStore(cfg.ImageCache, cfg.Log)
	base, err := images.Resolve(baseTemplate)
	have := err == nil
	var out []Check
	for _, m := range image.Requirements(ctx) {
		// mkfs.erofs packs the guest program too.
		out = append(out, Check{Name: "package " + m.Package, Required: !have || m.Package == "erofs-utils",
			Detail: m.Tool + " is missing: it " + m.Why, Fix: "apt-get install " + m.Package})
	}
	if have {
		return append(out, Check{Name: "base image", OK: true, Detail: fmt.Sprintf("%s, %d MB", base.Digest[:19], base.Size>>20)})
	}
	return append(out, Check{Name: "base image", Detail: "not there yet", Fix: "The first start of a server makes it, or `pandastack image build base`."})
}

// needSpace is what the base image takes while it is made, with room for the
// disks of a few sandboxes.
const needSpace = 5 << 30

func checkSpace(cfg Config) Check {
	c := Check{Name: "disk space", Required: true}
	dir := cfg.DataDir
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		c.Detail = err.Error()
		return c
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	c.OK, c.Detail = free >= needSpace, fmt.Sprintf("%.1f GB free at %s", float64(free)/1e9, dir)
	if !c.OK {
		c.Fix = "Free at least 5 GB or choose another --data-dir."
	}
	return c
}

func checkMemory() Check {
	c := Check{Name: "memory", OK: true}
	b, _ := os.ReadFile("/proc/meminfo")
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			var kb int64
			fmt.Sscan(f[1], &kb)
			c.Detail = fmt.Sprintf("%.1f GB available, room for about %d idle sandboxes", float64(kb)/1e6, kb/1024/20)
			c.OK = kb > 512<<10
		}
	}
	return c
}
