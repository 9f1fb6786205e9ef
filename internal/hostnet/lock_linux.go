package hostnet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Files that all servers of a machine share. They live where a reboot clears
// them, like the settings they are about.
const (
	runDir    = "/run/pandastack"
	lockFile  = runDir + "/hostnet.lock"  // held while something shared changes
	usersFile = runDir + "/hostnet.users" // each live server has a shared lock on it
	stateFile = runDir + "/hostnet.json"  // what to restore
)

// machineLock is the exclusive right to change what servers share.
type machineLock struct{ file *os.File }

func lockMachine(ctx context.Context) (*machineLock, error) {
	for {
		f, err := tryLock()
		if err != nil {
			return nil, unavailable(err, "the lock of sandbox networks cannot be taken")
		}
		if f != nil {
			return &machineLock{f}, nil
		}
		sleep(ctx, 5*time.Millisecond)
		if ctx.Err() != nil {
			return nil, ended(ctx.Err())
		}
	}
}

// tryLock gives nil when somebody else has the lock. The last server removes
// the file, so a lock counts only on the file that the name still means.
func tryLock() (*os.File, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // the directory went away meanwhile
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil || !sameFile(f, lockFile) {
		f.Close()
		if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// unlock drops the lock at once, also when a child that is being started still
// shares the descriptor.
func (l *machineLock) unlock() {
	unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	l.file.Close()
}

// enter says that a server is here until it leaves or dies. It needs the
// machine's lock, as leaveUsers does.
func enter() (*os.File, error) {
	f, err := os.OpenFile(usersFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unavailable(err, "the lock of sandbox networks cannot be made")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, unavailable(err, "the lock of sandbox networks cannot be taken")
	}
	return f, nil
}

// leaveUsers reports whether the one who leaves was the last.
func leaveUsers(f *os.File) (last bool, err error) {
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	if err != nil {
		return false, err
	}
	return true, unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

// removeRunFiles removes the shared files; the directory too unless somebody
// else uses it.
func removeRunFiles() error {
	var errs []error
	for _, path := range []string{usersFile, stateFile, lockFile} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	_ = os.Remove(filepath.Dir(lockFile)) // not empty: not ours alone
	return errors.Join(errs...)
}
