//go:build linux

package guestd

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/guest"
)

// OpenHold opens the way to tell the runtime that the rest of the machine may go
// on after a restore, and makes this process the one that is never held. It is
// nil where the runtime holds nothing.
func OpenHold() *os.File {
	fd, err := unix.Socket(guest.HoldFamily, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "hold")
}
