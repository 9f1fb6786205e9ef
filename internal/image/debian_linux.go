package image

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// apart runs a program in mount and process namespaces of its own, where the
// host's files are read-only except for the directory in $1. Whatever the
// program mounts and starts ends with it, however it ends, and none of it is
// seen on the host.
var apart = []string{
	"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "--",
	"sh", "-ec", `mount --bind "$1" "$1"; mount -o remount,bind,ro / || true; shift; exec "$@"`, "sh",
}

// buildDebian makes the root filesystem of a recipe.
func buildDebian(ctx context.Context, r Recipe, mirror string, c *scratch, p Progress) error {
	// Apt is not run after the steps: mmdebstrap keeps its configuration in
	// the new root's /tmp, and without it apt would work on the host.
	args := append(slices.Clone(apart), c.dir,
		"mmdebstrap", "--skip=cleanup/apt", "--verbose", "--mode=root", "--format=directory", "--variant=minbase",
		"--components=main")
	if len(r.Debian.Packages) > 0 {
		args = append(args, "--include="+strings.Join(r.Debian.Packages, ","))
	}
	for _, o := range append(aptNetwork(ctx), `Acquire::Retries "3"`, `APT::Install-Recommends "false"`) {
		args = append(args, "--aptopt="+o)
	}
	for _, g := range r.Debian.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+g)
	}
	for _, g := range r.Debian.Include {
		args = append(args, "--dpkgopt=path-include="+g)
	}
	// A crash in the middle of the build leaves nothing that is used, so
	// that writing to disk need not be waited for.
	args = append(args, "--dpkgopt=force-unsafe-io")
	for i, s := range r.Steps {
		args = append(args, "--customize-hook="+stepHook(i+1, s))
	}
	// How the host reaches the archive is no business of a sandbox.
	args = append(args, `--customize-hook=printf 'APT::Install-Recommends "false";\n' > "$1/etc/apt/apt.conf.d/99mmdebstrap"`)
	args = append(args, r.Debian.Suite, c.root())
	args = append(args, r.Debian.sources(mirror, os.DirFS("/"))...)
	progress := &debianProgress{report: p, steps: r.Steps}
	err := command{
		name: "unshare", args: args, line: progress.line,
		env: []string{"TMPDIR=" + c.dir},
	}.run(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	log := tailOf(err)
	if strings.Contains(log, "No space left on device") {
		return api.Wrap(api.CodeTemplateBuild, err, "the disk of the image store is full").
			WithHint("Free space on the host's disk or choose another data directory.").With("log", log)
	}
	during := ""
	if progress.step != "" {
		during = " while " + progress.step
	}
	return api.Wrap(api.CodeTemplateBuild, err, "building template %q failed%s", r.Name, during).With("log", log)
}

// stepHook is the shell line that runs a step in the new root.
func stepHook(number int, s Step) string {
	return fmt.Sprintf(`echo '%s%d'; exec chroot "$1" /usr/bin/env HOME=/root LANG=C.UTF-8 PATH=%s /bin/sh -euc %s`,
		stepMark, number, shellPath, quote(s.Run))
}

const shellPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// quote makes one word of a text for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var aptNetworkPattern = pattern(`^Acquire::(http|https|ftp)::[^ ]+ "[^"]*";$`)

// aptNetwork gives the host's settings for reaching package archives: proxies
// and certificates. Hosts that are not Debian's kin have none.
func aptNetwork(ctx context.Context) []string {
	var out []string
	err := command{name: "apt-config", args: []string{"dump"}, line: func(s string) {
		if aptNetworkPattern().MatchString(s) {
			out = append(out, strings.TrimSuffix(s, ";"))
		}
	}}.run(ctx)
	if err != nil {
		return nil
	}
	return out
}
