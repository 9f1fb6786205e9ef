package snapshot

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain plays two parts: a process that is to be killed (crash_test.go), and
// the tests.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		childMain()
	}
	goleak.VerifyTestMain(m)
}
