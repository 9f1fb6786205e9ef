package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// cutTries is how often connections that are still there are cut again.
const cutTries = 5

// cut ends the connections of a slot that its rules deny: those it began, and
// with others those that were begun to it.
func (k *kernel) cut(i int, c changed) error {
	a := k.cfg.slot(i).Address.Addr()
	directions := []uint32{ctBySource}
	if c.linked {
		directions = append(directions, ctByTarget)
	}
	return cutUntilGone(func() ([]tracked, error) { return connections(a, directions...) }, c.judge.permits)
}

// cutGap ends the connections of all slots of this server that their rules deny:
// they were begun while there were no rules, and would go on as known ones. A
// slot whose rules are not known is shut, and so is what it began. k.mu is held.
func (k *kernel) cutGap() error {
	links, err := k.slotLinks()
	if err != nil {
		return err
	}
	ours := map[netip.Addr]int{}
	for _, l := range links {
		i, _ := slotIndex(l.Attrs().Name, linkPrefix)
		if l.Attrs().Alias == k.cfg.alias() && i != k.gate {
			ours[k.cfg.slot(i).Address.Addr()] = i
		}
	}
	if err := k.closeStrays(ours); err != nil {
		return err
	}
	judges, kindOf := map[int]judge{}, k.addressKinds()
	permits := func(a netip.Addr, t tracked) bool {
		i, ok := ours[a]
		if !ok {
			return true
		}
		j, ok := judges[i]
		if !ok {
			j = k.judge(i, k.of(i).rules, kindOf)
			judges[i] = j
		}
		return j.permits(t)
	}
	err = cutUntilGone(func() ([]tracked, error) { return connections(netip.Addr{}) },
		func(t tracked) bool { return permits(t.source, t) && permits(t.target, t) })
	if hidden(err) {
		return nil
	}
	return err
}

// cutUntilGone forgets what is listed and not permitted until none of it is left.
func cutUntilGone(list func() ([]tracked, error), permits func(tracked) bool) error {
	var left []tracked
	for range cutTries {
		found, err := list()
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(found, permits)
		if len(left) == 0 {
			return nil
		}
		if err := forget(left); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d connections of sandboxes cannot be cut, the first from %s to %s", len(left), left[0].source, left[0].target)
}

// cutReleased forgets the connections of slots that were removed, at the times
// given, so that the next guests inherit none. Where another server has made the
// slot meanwhile, what began after the removal is its guest's; of a connection
// whose beginning the kernel does not know it is taken for the earlier guest's.
func (k *kernel) cutReleased(released map[int]time.Time) error {
	return k.cutStale(func(i int, there bool, t tracked) bool {
		at, ok := released[i]
		return ok && (!there || t.began.Before(at))
	})
}

// cutLost forgets the connections of slots that are not there: a process that
// was killed had not come to it.
func (k *kernel) cutLost() error {
	return k.cutStale(func(_ int, there bool, _ tracked) bool { return !there })
}

// cutStale forgets the connections that are stale for the slot at either end;
// there says whether the slot has a link. To look through the kernel's table is
// dear, so it is done for many slots at once. A kernel that does not show its
// table is left alone: there Apply refuses rules, and every slot has the same.
func (k *kernel) cutStale(stale func(i int, there bool, t tracked) bool) error {
	const what = "the connections of sandboxes that are gone cannot be removed"
	list, err := connections(netip.Addr{})
	if hidden(err) {
		return nil
	}
	if err != nil {
		return refusedBy(err, what)
	}
	// After the connections: those of a slot that is made now are not among them.
	links, err := k.slotLinks()
	if err != nil {
		return err
	}
	there := map[int]bool{}
	for _, l := range links {
		i, _ := slotIndex(l.Attrs().Name, linkPrefix)
		there[i] = true
	}
	staleAt := func(a netip.Addr, t tracked) bool {
		i, ok := k.cfg.indexOf(a)
		return ok && stale(i, there[i], t)
	}
	return refusedBy(forget(slices.DeleteFunc(list, func(t tracked) bool { return !staleAt(t.source, t) && !staleAt(t.target, t) })), what)
}

// hidden reports that the kernel does not show its table of connections.
func hidden(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || missing(err)
}

// judge decides on the connections of a slot as the chains of the table decide
// on the first packet of each.
type judge struct {
	cfg       Config
	slot      Slot
	gate      netip.Addr
	rules     Rules
	mates     map[netip.Addr]bool // who shares a group with the slot
	resolvers []netip.Addr
	kindOf    func(netip.Addr) int // what the host takes an address for
}

// judge of a slot under rules. k.mu is held.
func (k *kernel) judge(i int, r Rules, kindOf func(netip.Addr) int) judge {
	return judge{k.cfg, k.cfg.slot(i), k.own.gate, r, k.mates(r), k.rules.resolvers, kindOf}
}

func (j judge) permits(t tracked) bool {
	switch {
	case t.target == j.slot.Address.Addr():
		return j.admits(t.source)
	case t.target == j.gate:
		return t.port == gateDNSPort
	case j.cfg.Prefix.Contains(t.target):
		return j.mates[t.target]
	case j.rules.Offline:
		return false
	case j.rules.ByName:
		return t.via == j.gate // the proxy judges it
	}
	return j.aboveFloor(t) && j.rules.allows(t.target, t.port)
}

// admits is who may begin a connection to the slot: its mates and the host.
func (j judge) admits(from netip.Addr) bool {
	return j.mates[from] || from == j.slot.Gateway || j.kindOf(from) == unix.RTN_LOCAL
}

func (j judge) aboveFloor(t tracked) bool {
	resolves := t.port == 53 && slices.Contains(j.resolvers, t.target)
	if isDenied(t.target) && !resolves && !within(j.cfg.Pass, t.target) {
		return false
	}
	return j.kindOf(t.target) == unix.RTN_UNICAST
}

// addressKinds gives a function that asks the host's routes once for each
// address. One without a route is somebody else's, as it is for the chains.
func (k *kernel) addressKinds() func(netip.Addr) int {
	known := map[netip.Addr]int{}
	return func(a netip.Addr) int {
		kind, ok := known[a]
		if ok {
			return kind
		}
		kind = unix.RTN_UNICAST
		if routes, err := k.host.RouteGet(a.AsSlice()); err == nil && len(routes) > 0 {
			kind = routes[0].Type
		}
		known[a] = kind
		return kind
	}
}

// mates are the addresses of slots that share a group with r. A slot that an
// earlier process gave out is taken for one until its rules are known: they
// judge then. k.mu is held.
func (k *kernel) mates(r Rules) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	if len(r.Groups) == 0 {
		return out
	}
	for i, f := range k.slots {
		if !f.known || slices.ContainsFunc(r.Groups, func(g string) bool { return slices.Contains(f.rules.Groups, g) }) {
			out[k.cfg.slot(i).Address.Addr()] = true
		}
	}
	return out
}
