package image

import (
	"context"
	"os"
	"os/exec"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// Missing is something that the host lacks for building images.
type Missing struct {
	Tool    string `json:"tool"`    // program or file
	Package string `json:"package"` // of Debian and Ubuntu that has it
	Why     string `json:"why"`
}

var (
	needErofs  = Missing{"mkfs.erofs", "erofs-utils", "writes the read-only images that sandboxes boot from"}
	needDebian = []Missing{
		{"mmdebstrap", "mmdebstrap", "builds a root filesystem from Debian packages"},
		{"unshare", "util-linux", "keeps the mounts of a build apart from the host's"},
		{debianKeyring, "debian-archive-keyring", "proves that packages come from Debian"},
	}
)

// Requirements lists what is missing on this host for building images from
// recipes. Images from directories and archives need only mkfs.erofs.
func Requirements(ctx context.Context) []Missing {
	return lacking(append([]Missing{needErofs}, needDebian...))
}

func lacking(needs []Missing) []Missing {
	var out []Missing
	for _, m := range needs {
		var err error
		if strings.HasPrefix(m.Tool, "/") {
			_, err = os.Stat(m.Tool)
		} else {
			_, err = exec.LookPath(m.Tool)
		}
		if err != nil {
			out = append(out, m)
		}
	}
	return out
}

// require fails with host.setup_incomplete when something is missing.
func require(needs ...Missing) error {
	missing := lacking(needs)
	if len(missing) == 0 {
		return nil
	}
	var tools, packages []string
	for _, m := range missing {
		tools = append(tools, m.Tool)
		packages = append(packages, m.Package)
	}
	return api.Errorf(api.CodeHostSetup, "building images needs %s", strings.Join(tools, ", ")).
		WithHint("Install it: apt-get install --yes "+strings.Join(packages, " ")).
		With("packages", packages)
}
