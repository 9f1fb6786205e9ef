// Package gvisor isolates sandboxes with gVisor, embedded as a library: every
// machine is one sentry process (our own binary, executed again) that serves
// the guest's system calls from user space. It needs root and a Linux kernel,
// and no hardware virtualisation.
//
// The root is an EROFS image that the sentry maps read-only from the host's
// page cache; writes go to an overlay whose pages live in a sparse file in the
// machine's directory, so that they cost disk and not memory. There is no gofer
// process: the sentry holds the image, the file and one packet socket, and can
// open nothing else.
//
// docs/gvisor-upgrade.md lists what to check when the pinned gVisor version
// changes.
package gvisor

import "log/slog"

// Name is what users write to choose this driver.
const Name = "gvisor"

// Config is what the driver needs to know of its host.
type Config struct {
	// StateDir holds control sockets and shells. It must be on the same
	// filesystem as the machines' directories.
	StateDir string
	// GuestImage is an EROFS image with the guest program at /guest.
	GuestImage string
	// GuestDigest names the bytes of GuestImage; a snapshot restores only
	// with the guest it was made with.
	GuestDigest string
	// Log takes what happens in the background.
	Log *slog.Logger
}
