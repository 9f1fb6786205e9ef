package auth

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// Bootstrap makes the first admin key when the store has no key at all, and
// reports whether it did. The key stands in the file at path, which only its
// owner may read. The file is written before the row, so that a crash between
// the two loses nothing: a key already in the file becomes the admin key.
func (k *Keys) Bootstrap(ctx context.Context, path string) (created bool, err error) {
	if n, err := k.store.CountKeys(ctx); err != nil || n > 0 {
		return false, err
	}
	digits, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		digits = newDigits()
		err = writeKey(path, keyPrefix+digits)
	}
	if err != nil {
		return false, err
	}
	_, err = k.add(ctx, digits, store.Key{Org: DefaultOrg, Name: "admin", Admin: true})
	return err == nil, err
}

// readKey gives the digits of the key in a file and takes the file from other
// users.
func readKey(path string) (digits string, err error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err != nil {
		return "", api.Wrap(api.CodeHostSetup, err, "the admin key %s cannot be read", path)
	}
	digits, ok := parse(strings.TrimSpace(string(content)))
	if !ok {
		return "", api.Errorf(api.CodeHostSetup, "%s does not hold an API key", path).
			WithHint("Move the file away; the next start makes a new admin key there.")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return "", api.Wrap(api.CodeHostSetup, err, "the admin key %s cannot be taken from other users", path)
	}
	return digits, nil
}

// writeKey makes a file that either is complete and on disk or does not exist.
func writeKey(path, key string) (err error) {
	defer func() {
		if err != nil {
			err = api.Wrap(api.CodeHostSetup, err, "the admin key cannot be written to %s", path)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(path), ".admin-key-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(key + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
