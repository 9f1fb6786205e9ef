package guestbin

import "embed"

// The pattern matches this file too, so that the package compiles without the
// program, and the program of this architecture only.
//
//go:embed *_linux_arm64*
var files embed.FS
