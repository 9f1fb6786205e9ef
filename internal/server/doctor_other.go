//go:build !linux

package server

import (
	"context"
	"runtime"
)

// Doctor looks at this machine without changing it.
func Doctor(context.Context, Config) []Check {
	return []Check{{Name: "system", Required: true, Detail: "this is " + runtime.GOOS + "; sandboxes run on Linux",
		Fix: "Run the server on Linux; the client commands work here."}}
}
