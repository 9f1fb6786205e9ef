package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Of a transfer that breaks off: from which size on it goes on where it was, and
// how often it is tried without getting any further.
const (
	resumeAbove = 8 << 20
	resumeTries = 5
	resumePause = 500 * time.Millisecond
)

// partName names what has come of a file until it is whole. It says which
// state of which source it is of, so that nothing else is continued.
func partName(to, source string, size int64, modified time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", source, size, modified.UnixNano()))
	return path.Join(path.Dir(to), "."+path.Base(to)+".part-"+hex.EncodeToString(sum[:8]))
}

// resumable reports whether the same transfer can succeed soon.
func resumable(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeServerUnreachable, api.CodeHostUnreachable, api.CodeSandboxDied:
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// resume tries a transfer again as long as it gets further. at says how far it
// is.
func (c *copier) resume(at func() (int64, error), transfer func(offset int64) error) error {
	last := int64(-1)
	for tries := 0; ; {
		offset, err := at()
		if err == nil {
			if offset > last {
				tries = 0
			}
			last = offset
			err = transfer(offset)
		}
		if err == nil || c.ctx.Err() != nil || !resumable(err) {
			return err
		}
		if tries++; tries > resumeTries {
			return err
		}
		select {
		case <-time.After(resumePause << min(tries, 4)):
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// uploadParts sends a large file under another name, from where an earlier try
// came to, and gives it its own when it is whole.
func (c *copier) uploadParts(f *os.File, info fs.FileInfo, to string) error {
	source, err := filepath.Abs(f.Name())
	if err != nil {
		return localError(err)
	}
	part := partName(to, source, info.Size(), info.ModTime())
	at := func() (int64, error) {
		there, err := c.fs.Stat(c.ctx, part)
		if api.CodeOf(err) == api.CodeFileNotFound && err != nil {
			return 0, nil
		}
		if err != nil || there.Type != "file" || there.Size > info.Size() {
			return 0, err
		}
		return there.Size, nil
	}
	err = c.resume(at, func(offset int64) error {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return localError(err)
		}
		body := c.bar.readerFrom(io.LimitReader(f, info.Size()-offset), filepath.Base(source), offset, info.Size())
		got, err := c.fs.WriteFrom(c.ctx, part, offset, body)
		if err == nil && got.Size != info.Size() {
			err = localError(fmt.Errorf("%s changed while it was sent", f.Name()))
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.fs.Rename(c.ctx, part, to)
}

// downloadParts takes a large file under another name, from where an earlier try
// came to, and gives it its own when it is whole.
func (c *copier) downloadParts(root *os.Root, from, to string, mode fs.FileMode, info api.FileInfo) error {
	part := filepath.FromSlash(partName(filepath.ToSlash(to), info.Path, info.Size, info.Modified))
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return localError(err)
	}
	defer f.Close()
	at := func() (int64, error) {
		n, err := f.Seek(0, io.SeekEnd)
		if err == nil && n > info.Size {
			n, err = 0, f.Truncate(0)
		}
		if err != nil {
			return 0, localError(err)
		}
		return n, nil
	}
	err = c.resume(at, func(offset int64) error { return c.downloadFrom(f, from, offset, info) })
	if err == nil {
		err = c.unchanged(from, info)
		if err != nil {
			_ = root.Remove(part) // it is no state that the file ever had
		}
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return localError(err)
	}
	if err := root.Rename(part, to); err != nil {
		return localError(err)
	}
	return nil
}

func (c *copier) downloadFrom(f *os.File, from string, offset int64, info api.FileInfo) error {
	if offset == info.Size {
		return nil
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return localError(err)
	}
	r, err := c.fs.OpenRange(c.ctx, from, offset, info.Size-offset)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(f, c.bar.readerFrom(r, path.Base(from), offset, info.Size))
	if err == nil && offset+n != info.Size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// unchanged fails if a file of the sandbox is another than when its transfer
// began.
func (c *copier) unchanged(from string, info api.FileInfo) error {
	now, err := c.fs.Stat(c.ctx, from)
	if err != nil {
		return err
	}
	if now.Size != info.Size || !now.Modified.Equal(info.Modified) {
		return api.Errorf(api.CodeFileInvalidPath, "%s changed while it was read", from).WithHint("Try again when nothing writes to it.")
	}
	return nil
}
