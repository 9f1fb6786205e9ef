//go:build linux && arm64

package gvisor

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// seccompProgram has nothing on arm64: the generator must run on the
// architecture it generates for, so the sentry compiles its filter at start.
func seccompProgram() (precompiledseccomp.Program, bool) {
	return precompiledseccomp.Program{}, false
}
