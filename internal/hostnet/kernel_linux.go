package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// kernel is the part of a Manager that talks to Linux.
type kernel struct {
	cfg   Config
	host  *netlink.Handle // route netlink of the host's namespace
	user  *os.File        // holds the shared lock that says this server is here
	gate  int             // index of its slot
	own   ownPart
	mtu   atomic.Int64    // of new slots
	turns [64]sync.Mutex  // by index: a slot's rules change once at a time; taken before mu
	mu    sync.Mutex      // guards what follows, and every change of the table
	rules policy          // as last installed
	slots map[int]inForce // that are not under the default rules
	lost  bool            // slots' rules that are in slots are not in the table
}

// setup does all or nothing, and gives the index of the gate.
func (k *kernel) setup(ctx context.Context, cfg Config) (gate int, err error) {
	if os.Geteuid() != 0 {
		return 0, api.Errorf(api.CodeNotRoot, "sandbox networks need root")
	}
	k.cfg, k.slots = cfg, map[int]inForce{}
	if k.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return 0, unavailable(err, "the kernel's network settings cannot be opened")
	}
	defer func() {
		if err != nil {
			k.host.Close()
		}
	}()
	if err := k.checkRange(cfg); err != nil {
		return 0, err
	}
	lock, err := lockMachine(ctx)
	if err != nil {
		return 0, err
	}
	defer lock.unlock()
	if k.user, err = enter(); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.leave())
		}
	}()
	if err := lock.shareNetnsDir(); err != nil {
		return 0, err
	}
	if err := k.refreshLocked(lock); err != nil {
		return 0, err
	}
	lock.countConnections()
	return k.setupGate()
}

func (k *kernel) setupGate() (gate int, err error) {
	if k.gate, err = k.openGate(); err != nil {
		return 0, err
	}
	k.own = ownPart{cfg: k.cfg, gate: k.cfg.slot(k.gate).Gateway, log: logGroup(k.gate)}
	if err := k.cutLost(); err != nil {
		return 0, errors.Join(err, k.closeGate())
	}
	if err := transact(k.own.build); err != nil {
		return 0, errors.Join(refusedBy(err, "the rules of this server's sandboxes cannot be installed (nftables)"), k.closeGate())
	}
	return k.gate, nil
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
	k.mtu.Store(int64(slotMTU(ups)))
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.install(want); err != nil {
		return err
	}
	// Only now: an uplink never forwards without the rules.
	return lock.forward(ups)
}

// ensureRules puts back what is not as it was left: the shared chains, this
// server's part, its slots' rules.
func (k *kernel) ensureRules(ctx context.Context) (bool, error) {
	k.mu.Lock()
	lost := k.lost
	k.mu.Unlock()
	if !lost && sharedInPlace() && k.own.inPlace() {
		return false, nil
	}
	lock, err := lockMachine(ctx)
	if err != nil {
		return false, err
	}
	defer lock.unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.install(k.rules)
}

// install brings the table to what it should be, and reports whether it had to
// be put back. The machine's lock and k.mu are held. Before the gate is there,
// this server has no part of the table.
func (k *kernel) install(p policy) (restored bool, err error) {
	fresh := !sharedInPlace()
	mine := k.own.gate.IsValid()
	k.lost = k.lost || mine && (fresh || !k.own.inPlace())
	if restored = fresh || k.lost; !restored && p.equal(k.rules) {
		return false, nil
	}
	err = transact(func(r *ruleset) {
		if fresh {
			newTable(r)
		}
		setPolicy(r, p)
		if k.lost {
			k.own.build(r)
		}
	})
	if err == nil && k.lost {
		if err = k.restoreSlots(); err == nil {
			err = k.cutGap()
		}
	}
	if err != nil {
		return restored, refusedBy(err, "the rules of sandbox networks cannot be installed (nftables)")
	}
	k.rules, k.lost = p, false
	return restored, nil
}

// close leaves the machine, and cleans it when nobody is left.
func (k *kernel) close(ctx context.Context) error {
	defer k.host.Close()
	lock, err := lockMachine(ctx)
	if err != nil {
		return err
	}
	defer lock.unlock()
	return errors.Join(k.closeGate(), k.leave())
}

// removeLate removes a slot after close, as a server that comes for nothing else.
func (k *kernel) removeLate(ctx context.Context, i int) (err error) {
	if k.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return unavailable(err, "the kernel's network settings cannot be opened")
	}
	defer k.host.Close()
	lock, err := lockMachine(ctx)
	if err != nil {
		return err
	}
	defer lock.unlock()
	if k.user, err = enter(); err != nil {
		return err
	}
	return errors.Join(k.remove(i), k.closeGate(), k.leave())
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

// leadsOut reports whether the route to an address leaves the host for
// somebody who is no sandbox.
func (k *kernel) leadsOut(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return false
	}
	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	return err == nil && !strings.HasPrefix(l.Attrs().Name, linkPrefix)
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
