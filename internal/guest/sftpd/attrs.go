//go:build linux

package sftpd

import (
	"golang.org/x/sys/unix"
)

// Which attributes are there.
const (
	attrSize     = 0x01
	attrOwner    = 0x02
	attrMode     = 0x04
	attrTimes    = 0x08
	attrExtended = 0x80000000
)

// attributes are what a client wants a file to have.
type attributes struct {
	flags        uint32
	size         uint64
	uid, gid     uint32
	mode         uint32
	atime, mtime uint32
}

func (r *reader) attrs() attributes {
	a := attributes{flags: r.uint32()}
	if a.flags&attrSize != 0 {
		a.size = r.uint64()
	}
	if a.flags&attrOwner != 0 {
		a.uid, a.gid = r.uint32(), r.uint32()
	}
	if a.flags&attrMode != 0 {
		a.mode = r.uint32() & 0o7777
	}
	if a.flags&attrTimes != 0 {
		a.atime, a.mtime = r.uint32(), r.uint32()
	}
	if a.flags&attrExtended != 0 {
		for n := r.uint32(); n > 0 && !r.bad; n-- {
			r.bytes()
			r.bytes()
		}
	}
	return a
}

func (a *attributes) modeOr(otherwise uint32) uint32 {
	if a.flags&attrMode != 0 {
		return a.mode & 0o777
	}
	return otherwise
}

// apply gives a file the attributes. A link itself has only owner and times.
func (a *attributes) apply(path string, follow bool) error {
	how := 0
	if !follow {
		how = unix.AT_SYMLINK_NOFOLLOW
	}
	if a.flags&attrSize != 0 && follow {
		if err := unix.Truncate(path, int64(a.size)); err != nil {
			return err
		}
	}
	if a.flags&attrTimes != 0 {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, a.times(), how); err != nil {
			return err
		}
	}
	if a.flags&attrMode != 0 && follow {
		if err := unix.Chmod(path, a.mode); err != nil {
			return err
		}
	}
	if a.flags&attrOwner != 0 {
		return unix.Fchownat(unix.AT_FDCWD, path, int(a.uid), int(a.gid), how)
	}
	return nil
}

// applyTo is apply for an open file.
func (a *attributes) applyTo(fd int) error {
	if a.flags&attrSize != 0 {
		if err := unix.Ftruncate(fd, int64(a.size)); err != nil {
			return err
		}
	}
	if a.flags&attrTimes != 0 {
		ts := a.times()
		tv := []unix.Timeval{unix.NsecToTimeval(ts[0].Nano()), unix.NsecToTimeval(ts[1].Nano())}
		if err := unix.Futimes(fd, tv); err != nil {
			return err
		}
	}
	if a.flags&attrMode != 0 {
		if err := unix.Fchmod(fd, a.mode); err != nil {
			return err
		}
	}
	if a.flags&attrOwner != 0 {
		return unix.Fchown(fd, int(a.uid), int(a.gid))
	}
	return nil
}

func (a *attributes) times() []unix.Timespec {
	return []unix.Timespec{{Sec: int64(a.atime)}, {Sec: int64(a.mtime)}}
}

// attrs writes what a file has.
func (a *answer) attrs(st *unix.Stat_t) {
	a.uint32(attrSize | attrOwner | attrMode | attrTimes)
	a.uint64(uint64(st.Size))
	a.uint32(st.Uid)
	a.uint32(st.Gid)
	a.uint32(st.Mode)
	a.uint32(uint32(st.Atim.Sec))
	a.uint32(uint32(st.Mtim.Sec))
}
