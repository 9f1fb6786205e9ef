// Package guestbin holds the guest program for the architecture it is built
// for, which `make build` leaves beside this file as guest_linux_<arch>. A build
// without that step compiles, and says at run time what is missing.
package guestbin

import (
	"runtime"

	"github.com/pandastack/pandastack/api"
)

// Name is the file that the build puts here for an architecture.
func Name(arch string) string { return "guest_linux_" + arch }

// Binary gives the guest program, a static Linux executable. Without one it is
// host.setup_incomplete.
func Binary() ([]byte, error) {
	data, err := files.ReadFile(Name(runtime.GOARCH))
	if err != nil {
		return nil, api.Wrap(api.CodeHostSetup, err, "built without guest; run make build")
	}
	return data, nil
}
