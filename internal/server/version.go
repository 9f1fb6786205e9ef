package server

import (
	"runtime"

	"github.com/pandastack/pandastack/api"
)

// Set by the build.
var (
	version = "dev"
	commit  = ""
)

// Version is what this binary is.
func Version() api.Version {
	return api.Version{Version: version, Commit: commit, Go: runtime.Version(), Runtime: runtimeVersion()}
}
