//go:build !linux

package image

import (
	"context"
	"io"

	"github.com/pandastack/pandastack/api"
)

var errLinuxOnly = api.Errorf(api.CodeUnsupported, "images are built on Linux only")

// FromRecipe is refused with request.unsupported: images are built on Linux.
func (s *Store) FromRecipe(context.Context, Recipe, Progress) (Image, error) {
	return Image{}, errLinuxOnly
}

// Rebuild is refused with request.unsupported: images are built on Linux.
func (s *Store) Rebuild(context.Context, Recipe, Progress) (Image, error) {
	return Image{}, errLinuxOnly
}

// FromDir is refused with request.unsupported: images are built on Linux.
func (s *Store) FromDir(context.Context, string, Progress) (Image, error) {
	return Image{}, errLinuxOnly
}

// FromTar is refused with request.unsupported: images are built on Linux.
func (s *Store) FromTar(context.Context, io.Reader, Progress) (Image, error) {
	return Image{}, errLinuxOnly
}

// FromTarFile is refused with request.unsupported: images are built on Linux.
func (s *Store) FromTarFile(context.Context, string, Progress) (Image, error) {
	return Image{}, errLinuxOnly
}

// GuestImage is refused with request.unsupported: images are built on Linux.
func (s *Store) GuestImage(context.Context, []byte) (Image, error) {
	return Image{}, errLinuxOnly
}
