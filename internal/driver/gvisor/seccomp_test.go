//go:build linux

package gvisor

import (
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// sentryOptions is what a sentry with our flags asks of the seccomp table.
func sentryOptions(t *testing.T) filter.Options {
	t.Helper()
	c, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	infos := c.PrecompiledSeccompInfo()
	if len(infos) != 1 {
		t.Fatalf("systrap has %d seccomp variants, one is known", len(infos))
	}
	return filter.Options{Platform: infos[0]}
}
