//go:build !linux

package server

import (
	"context"
	"runtime"

	"github.com/pandastack/pandastack/api"
)

func checkHost() error {
	return api.Errorf(api.CodeUnsupported, "a server runs on Linux only, not on %s", runtime.GOOS).
		WithHint("Use the commands of the client against a server on Linux.")
}

func newMachine(context.Context, Config) (Machine, error) { return nil, checkHost() }

func runtimeVersion() string { return "" }
