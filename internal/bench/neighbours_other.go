//go:build !linux

package bench

import (
	"context"
	"errors"
)

// Neighbours measures other container runtimes, which exist on Linux only.
func Neighbours(context.Context, NeighbourOptions) ([]Result, error) {
	return nil, errors.New("bench: the runtimes to compare with need Linux")
}
