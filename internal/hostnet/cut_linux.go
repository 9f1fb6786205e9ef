package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// cutTries is how often connections that are still there are cut again.
const cutTries = 5

// cut ends the connections of a slot that its rules deny: those it began, and
// with others those that were begun to it.
func (k *kernel) cut(i int, r Rules, c changed) error {
	a := k.cfg.slot(i).Address.Addr()
	directions := []uint32{ctBySource}
	if c.linked {
		directions = append(directions, ctByTarget)
	}
	var left []tracked
	for range cutTries {
		list, err := connections(a, directions...)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(list, func(t tracked) bool { return k.permits(i, r, c.mates, t) })
		if len(left) == 0 {
			return nil
		}
		if err := forget(left); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d connections of %s cannot be cut", len(left), a)
}

// cutReleased forgets the connections of slots that are gone, so that the next
// guests inherit none. To look through the kernel's table is dear, so it is done
// for many slots at once. A slot that another server has made meanwhile is its
// affair. A kernel that does not show its table is left alone: there Apply
// refuses rules, and every slot has the same.
func (k *kernel) cutReleased(released []int) error {
	gone := map[netip.Addr]bool{}
	for _, i := range released {
		if _, err := k.host.LinkByName(linkName(i)); err != nil {
			gone[k.cfg.slot(i).Address.Addr()] = true
		}
	}
	list, err := connections(netip.Addr{})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || missing(err) {
		return nil
	}
	if err == nil {
		err = forget(slices.DeleteFunc(list, func(t tracked) bool { return !gone[t.source] && !gone[t.target] }))
	}
	return refusedBy(err, "the connections of sandboxes that are gone cannot be removed")
}

// permits judges a connection as the chains of the table judge its first packet.
func (k *kernel) permits(i int, r Rules, mates map[netip.Addr]bool, t tracked) bool {
	s := k.cfg.slot(i)
	a := s.Address.Addr()
	other := t.target
	if other == a {
		other = t.source
	}
	switch {
	case other == s.Gateway, other == k.own.gate: // the host's, or DNS
		return true
	case k.cfg.Prefix.Contains(other):
		return mates[other]
	case t.target == a: // the host dials guests
		return true
	case t.via == k.own.gate && r.ByName && !r.Offline: // the proxy judges it
		return true
	case r.Offline || r.ByName:
		return false
	}
	return r.allows(other, t.port)
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
