package gvisor

import (
	"fmt"
	"io"
	"path/filepath"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// guestMount is where every machine finds the guest program, on an image of its
// own so that templates do not change when the program does.
const guestMount = "/.pandastack"

// runscFlags are gVisor's settings. Each is here for a reason:
//   - directfs off runs the sentry as nobody without any capability; with no
//     gofer there is no host filesystem for it to reach anyway.
//   - cgroups are ours: on v1 gVisor would move this whole process into the
//     sandbox's cgroup while it forks.
//   - net-raw lets ping work; what leaves is filtered on the host.
//   - allow-suid lets sudo work; the ids it changes are gVisor's own.
//   - TX checksums are computed by the sentry unless the packet socket takes
//     them (host GSO does).
func runscFlags(stateDir string) []string {
	return []string{
		"--root=" + runDir(stateDir),
		"--platform=systrap",
		"--network=sandbox",
		"--overlay2=none",
		"--directfs=false",
		"--ignore-cgroups=true",
		"--cpu-num-from-quota=true",
		"--host-settings=ignore",
		"--net-raw=true",
		"--allow-suid=true",
	}
}

func runDir(stateDir string) string    { return filepath.Join(stateDir, "run") }
func shellsDir(stateDir string) string { return filepath.Join(stateDir, "shells") }
func emptyDir(stateDir string) string  { return filepath.Join(stateDir, "empty") }

func newRunscConfig(stateDir string) (*config.Config, error) {
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	flags := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(flags)
	if err := flags.Parse(runscFlags(stateDir)); err != nil {
		return nil, fmt.Errorf("parse gVisor flags: %w", err)
	}
	conf, err := config.NewFromFlags(flags)
	if err != nil {
		return nil, fmt.Errorf("gVisor configuration: %w", err)
	}
	return conf, nil
}

// allCapabilities are given to the guest's root. They are gVisor's, not the
// host's: they let the guest program mount, set the clock and rename the
// machine, and reach nothing outside.
var allCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_IPC_LOCK",
	"CAP_KILL", "CAP_LEASE", "CAP_LINUX_IMMUTABLE", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SYS_NICE",
	"CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME",
}

// ociSpec describes the guest. Apart from the hostname nothing in it may depend
// on the machine: gVisor compares the specs of a checkpoint and of the sandbox
// that restores it.
func ociSpec(hostname, guestImage, root string) *specs.Spec {
	caps := &specs.LinuxCapabilities{Bounding: allCapabilities, Effective: allCapabilities, Permitted: allCapabilities, Inheritable: allCapabilities}
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args:         []string{guestMount + "/guest"},
			Cwd:          "/",
			Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			Capabilities: caps,
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 65536, Hard: 1048576}},
		},
		Root:     &specs.Root{Path: root},
		Hostname: hostname,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", "size=64m"}},
			{Destination: guestMount, Type: "erofs", Source: guestImage, Options: []string{"ro", "nosuid", "nodev"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}},
		},
	}
}
