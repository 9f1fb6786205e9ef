package gvisor

import (
	"runtime"
	"strings"
)

// Version names the build of the runtime. Checkpoints restore only into the
// same one.
func Version() string {
	_, commit, _ := strings.Cut(moduleVersion, "v0.0.0-")
	return "gvisor-" + commit + "-" + runtime.Version() + "-" + runtime.GOARCH + "-p" + patchLevel
}

func setVersion() { runscVersion = Version() }
