//go:build linux

package guestd

import "golang.org/x/sys/unix"

// tmpOnDisk uncovers the root filesystem's /tmp where the runtime has put one
// in memory over it: files there count against the disk's size, not memory's.
func tmpOnDisk() {
	var root, tmp unix.Statfs_t
	if unix.Statfs("/", &root) != nil || unix.Statfs("/tmp", &tmp) != nil || tmp.Type == root.Type {
		return
	}
	if unix.Unmount("/tmp", 0) == nil {
		_ = unix.Chmod("/tmp", 0o1777) // an image may have it otherwise
	}
}
