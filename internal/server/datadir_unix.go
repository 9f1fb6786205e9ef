//go:build unix

package server

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
)

// lockDataDir makes the data directory and keeps other servers out of it until
// unlock or the end of the process.
func lockDataDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, dataDirError(err, dir)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, dataDirError(err, dir)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, dataDirError(err, dir)
		}
		owner := ""
		var b [16]byte
		if n, _ := f.Read(b[:]); n > 0 {
			owner = " (process " + strings.TrimSpace(string(b[:n])) + ")"
		}
		return nil, api.Errorf(api.CodeDataDirLocked, "another server%s uses %s", owner, dir)
	}
	// Who holds the lock is for people; the lock itself is the kernel's.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return func() { _ = f.Close() }, nil
}
