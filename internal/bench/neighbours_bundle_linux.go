package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// bundle writes an OCI bundle named name, whose container runs argv in the
// image, and gives its directory. The settings are what `runc spec` writes. With
// erofs the runtime is to mount the image itself, as gVisor can; otherwise it
// gets the mounted directory.
func (r *room) bundle(name string, erofs bool, argv ...string) (string, error) {
	dir := filepath.Join(r.dir, "bundles", name)
	empty := filepath.Join(dir, "empty")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return "", err
	}
	spec := containerSpec(argv)
	spec.Root = &specs.Root{Path: r.root, Readonly: true}
	spec.Linux.CgroupsPath = "/" + r.cgs + "/" + name
	if erofs {
		spec.Root = &specs.Root{Path: empty}
		spec.Annotations = map[string]string{
			"dev.gvisor.spec.rootfs.source":  r.img,
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.overlay": "memory",
		}
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("bench: encode a bundle: %w", err)
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
}

func containerSpec(argv []string) *specs.Spec {
	caps := []string{"CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"}
	namespaces := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
	}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return &specs.Spec{
		Version:  "1.0.2",
		Hostname: "bench",
		Process: &specs.Process{
			Args: argv, Cwd: "/", NoNewPrivileges: true,
			Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Mounts: containerMounts(),
		Linux: &specs.Linux{
			Namespaces: namespaces,
			Resources:  &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

func containerMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
}
