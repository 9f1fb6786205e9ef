//go:build !unix

package server

// lockDataDir is never reached: checkHost refuses this system first.
func lockDataDir(string) (func(), error) { return func() {}, nil }
