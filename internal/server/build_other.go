//go:build !linux

package server

import (
	"context"

	"github.com/pandastack/pandastack/api"
)

// BuildTemplate needs Linux.
func BuildTemplate(context.Context, Config, string, func(string, float64)) (string, error) {
	return "", api.Errorf(api.CodeUnsupported, "images are made on Linux")
}
