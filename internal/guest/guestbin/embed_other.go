//go:build !linux || !(amd64 || arm64)

package guestbin

import "embed"

// files is empty: sandboxes do not run on this system.
var files embed.FS
