package hostnet

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netns is a network namespace that has no name yet: it ends when its file and
// all sockets in it are closed, unless it was named before.
type netns struct {
	file  *os.File
	route *netlink.Handle
}

// newNetns makes a namespace with IPv6 off and nothing forwarded.
func newNetns() (*netns, error) {
	var n *netns
	err := onSpareThread(func() (err error) {
		n, err = unshareNetns()
		return err
	})
	return n, err
}

// onSpareThread runs f on a thread that ends with it, so that no goroutine ever
// runs on a thread that has been to another namespace. The main thread cannot
// end, and what is read about a process under /proc is read from it: it is
// kept busy while f runs elsewhere.
func onSpareThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if unix.Gettid() == unix.Getpid() {
			done <- onSpareThread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}

func unshareNetns() (n *netns, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	for _, link := range []string{"all", "default", "lo"} {
		if err := disableIPv6(link); err != nil {
			return nil, err
		}
	}
	for _, link := range []string{"all", "default"} {
		if err := setSysctl("ipv4", link, "forwarding", "0"); err != nil {
			return nil, err
		}
	}
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &netns{f, route}, nil
}

// openNetns enters a named namespace far enough to ask about its interfaces.
func openNetns(path string) (*netns, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Type != unix.NSFS_MAGIC {
		f.Close()
		return nil, errors.New(path + " is not a namespace")
	}
	n := &netns{file: f}
	err = onSpareThread(func() (err error) {
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		n.route, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return n, nil
}

func (n *netns) close() {
	n.route.Close()
	n.file.Close()
}

// up brings the guest's end and the loopback of the namespace up.
func (n *netns) up() error {
	for _, name := range []string{"lo", guestLink} {
		l, err := n.route.LinkByName(name)
		if err != nil {
			return err
		}
		if err := n.route.LinkSetUp(l); err != nil {
			return err
		}
	}
	return nil
}

// name keeps the namespace at path. A leftover of that name is replaced.
func (n *netns) name(path string) error {
	if err := unname(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	err = unix.Mount("/proc/self/fd/"+strconv.Itoa(int(n.file.Fd())), path, "", unix.MS_BIND, "")
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// unname removes a name; one that is not there is fine.
func unname(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
