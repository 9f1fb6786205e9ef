package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// imageUUID is the same for all images: it takes part in the digest.
const imageUUID = "6c1b2f52-3a0e-4d1c-9a51-0c3b5f1e7a10"

// makeErofs writes the EROFS image of a directory.
//
// Inline data is off because gVisor maps files of the image straight into
// memory, which needs whole pages. Times newer than epoch become epoch; those
// of older files stay, as Python's byte code is only used while its source has
// the time it was compiled at.
func makeErofs(ctx context.Context, out, dir string, epoch time.Time) error {
	err := command{
		name: "mkfs.erofs",
		args: []string{"--quiet", "-d1", "-Enoinline_data", "-U", imageUUID, out, dir},
		env:  []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(max(epoch.Unix(), 1), 10)},
	}.run(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if strings.Contains(strings.ToLower(tailOf(err)), "no space left") {
		return full(unix.ENOSPC)
	}
	return api.Wrap(api.CodeTemplateBuild, err, "writing the image failed").With("log", tailOf(err))
}

var versionPattern = pattern(`[0-9]+\.[0-9]+[0-9.a-z~+-]*`)

// erofsVersion is the version of mkfs.erofs. Another one may lay the same
// content out in other bytes.
func erofsVersion(ctx context.Context) (string, error) {
	var version string
	err := command{name: "mkfs.erofs", args: []string{"-V"}, line: func(s string) {
		if version == "" {
			version = versionPattern().FindString(s)
		}
	}}.run(ctx)
	// Version 1.5 does not know the option, and says its version first.
	if version == "" {
		return "", fmt.Errorf("ask mkfs.erofs for its version: %w", err)
	}
	return "mkfs.erofs " + version, nil
}

// newest gives the newest time below dir that is older than before. It is what
// the content brought along, as opposed to what the build wrote.
func newest(ctx context.Context, dir string, before time.Time) (time.Time, error) {
	var top time.Time
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if m := fi.ModTime(); m.Before(before) && m.After(top) {
			top = m
		}
		return nil
	})
	if errors.Is(err, unix.ENAMETOOLONG) {
		return top, invalid("the directories of the root filesystem are nested too deep")
	}
	if err != nil {
		return top, fmt.Errorf("look through the root filesystem: %w", err)
	}
	return top, nil
}

// pack writes the image of a scratch root and stores it.
func (s *Store) pack(ctx context.Context, c *scratch, source string, p Progress) (Image, error) {
	p.report("writing image", 0)
	epoch, err := newest(ctx, c.root(), c.born)
	if err != nil {
		return Image{}, err
	}
	if err := makeErofs(ctx, c.image(), c.root(), epoch); err != nil {
		os.Remove(c.image())
		return Image{}, err
	}
	p.report("storing image", 0.7)
	tool, err := erofsVersion(ctx)
	if err != nil {
		return Image{}, err
	}
	img, err := s.commit(ctx, c.image(), source, tool)
	if err != nil {
		return Image{}, full(err)
	}
	p.report("image ready", 1)
	return img, nil
}
