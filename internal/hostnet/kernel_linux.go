package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// kernel is the part of a Manager that talks to Linux.
type kernel struct {
	cfg   Config
	host  *netlink.Handle // route netlink of the host's namespace
	user  *os.File        // holds the shared lock that says this server is here
	mu    sync.Mutex      // guards what follows
	rules policy          // as last installed
	mtu   int             // of new slots
}

// setup does all or nothing.
func (k *kernel) setup(ctx context.Context, cfg Config) (err error) {
	if os.Geteuid() != 0 {
		return api.Errorf(api.CodeNotRoot, "sandbox networks need root")
	}
	k.cfg = cfg
	if k.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return unavailable(err, "the kernel's network settings cannot be opened")
	}
	defer func() {
		if err != nil {
			k.host.Close()
		}
	}()
	if err := k.checkRange(cfg); err != nil {
		return err
	}
	lock, err := lockMachine(ctx)
	if err != nil {
		return err
	}
	defer lock.unlock()
	if k.user, err = enter(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.leave())
		}
	}()
	if err := lock.shareNetnsDir(); err != nil {
		return err
	}
	return k.refreshLocked(lock)
}

// refresh follows the host to other uplinks and resolvers.
func (k *kernel) refresh(ctx context.Context) error {
	lock, err := lockMachine(ctx)
	if err != nil {
		return err
	}
	defer lock.unlock()
	return k.refreshLocked(lock)
}

func (k *kernel) refreshLocked(lock *machineLock) error {
	ups, err := k.uplinks()
	if err != nil {
		return err
	}
	want := k.policyFor(ups)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mtu = slotMTU(ups)
	if !want.equal(k.rules) || !rulesInPlace(want) {
		if err := installRules(want); err != nil {
			return err
		}
		k.rules = want
	}
	// Only now: an uplink never forwards without the rules.
	return lock.forward(ups)
}

// ensureRules puts the table back if it is not as it was left.
func (k *kernel) ensureRules(ctx context.Context) (bool, error) {
	k.mu.Lock()
	want := k.rules
	k.mu.Unlock()
	if rulesInPlace(want) {
		return false, nil
	}
	lock, err := lockMachine(ctx)
	if err != nil {
		return false, err
	}
	defer lock.unlock()
	if rulesInPlace(want) { // another server was quicker
		return false, nil
	}
	return true, installRules(want)
}

// close leaves the machine, and cleans it when nobody is left.
func (k *kernel) close(ctx context.Context) error {
	defer k.host.Close()
	lock, err := lockMachine(ctx)
	if err != nil {
		return err
	}
	defer lock.unlock()
	return k.leave()
}

// leave needs the machine's lock. What is shared goes when no other server is
// here and no slot is left, of this owner or of one that is only away.
func (k *kernel) leave() error {
	last, err := leaveUsers(k.user)
	if err != nil || !last {
		return err
	}
	links, err := k.slotLinks()
	if err != nil || len(links) > 0 {
		return err
	}
	return errors.Join(removeRules(), restoreMachine())
}

// isLocal reports whether an address belongs to the host: whether the route to
// it ends here.
func (k *kernel) isLocal(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// dump repeats a listing that the kernel reports as torn, which happens while
// other servers make and remove slots.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for range 50 {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return list()
}

// slotLinks lists the host ends of all slots on the machine.
func (k *kernel) slotLinks() ([]netlink.Link, error) {
	links, err := dump(k.host.LinkList)
	if err != nil {
		return nil, unavailable(err, "the host's interfaces cannot be listed")
	}
	var out []netlink.Link
	for _, l := range links {
		if _, ok := slotIndex(l.Attrs().Name, linkPrefix); ok {
			out = append(out, l)
		}
	}
	return out, nil
}

// unavailable gives a failure of the kernel its code: not being allowed and
// not being able have advice of their own.
func unavailable(err error, what string) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return api.Wrap(api.CodeNotRoot, err, "%s: not permitted; a container needs CAP_NET_ADMIN and CAP_SYS_ADMIN", what)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOSYS):
		return api.Wrap(api.CodeKernelFeature, err, "%s: the kernel does not support it", what)
	}
	return api.Wrap(api.CodeNetworkUnavailable, err, "%s: %v", what, err)
}
