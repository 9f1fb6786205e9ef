//go:build linux

package main

import "testing"

// TestSessionTour runs the session of docs/session.md.
func TestSessionTour(t *testing.T) {
	t.Parallel()
	runTour(t, "../../docs/session.md")
}
