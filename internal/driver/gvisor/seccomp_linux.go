package gvisor

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go run ./genseccomp

// precompiledPrograms is gVisor's table of seccomp programs compiled ahead. A
// build from the Go module leaves it empty, and every sentry then spends 16 ms
// compiling the same filter.
//
//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

// installSeccomp puts the compiled filter for our one configuration into the
// table. Where none was generated for an architecture, the sentry compiles it.
func installSeccomp() {
	filter.GetPrecompiled("") // fires the sync.Once that would empty the table
	if p, ok := seccompProgram(); ok {
		precompiledPrograms = map[string]precompiledseccomp.Program{p.Name: p}
	}
}
