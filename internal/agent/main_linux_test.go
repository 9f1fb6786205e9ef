package agent

import (
	"os"
	"testing"

	"github.com/pandastack/pandastack/internal/driver/gvisor"
)

// TestMain plays three parts: gVisor's own processes, an agent that is to be
// killed (crash_linux_test.go), and the tests.
func TestMain(m *testing.M) {
	if gvisor.IsReexec() {
		gvisor.Main()
	}
	if os.Getenv(childVariable) != "" {
		childMain()
	}
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}
