package hostnet

import (
	"errors"
	"hash/fnv"

	"github.com/pandastack/pandastack/api"
)

// openGate finds the gate that an earlier process of this owner left, or makes
// one. What is left of other gates goes.
func (k *kernel) openGate() (int, error) {
	links, err := k.slotLinks()
	if err != nil {
		return 0, err
	}
	found := -1
	for _, l := range links {
		i, _ := slotIndex(l.Attrs().Name, linkPrefix)
		if l.Attrs().Alias != k.cfg.alias() || k.cfg.kindOf(l.Attrs().Group) != kindGate {
			continue
		}
		if _, err := k.adoptAs(i, kindGate); err == nil && found < 0 {
			found = i
			continue
		}
		if err := k.remove(i); err != nil {
			return 0, err
		}
	}
	if found >= 0 {
		return found, nil
	}
	return k.makeGate()
}

// makeGate begins its search at a number that is the server's own, so that it
// mostly finds the same: guests that were asleep meanwhile know its address.
func (k *kernel) makeGate() (int, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte("gate:" + k.cfg.Owner))
	n := k.cfg.slots()
	first := int(h.Sum32() % uint32(n))
	for try := range n {
		i := (first + try) % n
		_, err := k.createAs(i, kindGate, maxMTU)
		if err == nil {
			return i, nil
		}
		if !errors.Is(err, errTaken) {
			return 0, err
		}
	}
	return 0, api.Errorf(api.CodeCapacity, "all %d network slots of %s are in use", n, k.cfg.Prefix)
}

// closeGate removes the gate and this server's part of the rules, unless a slot
// of the server is left that needs them.
func (k *kernel) closeGate() error {
	left, err := k.owned()
	if err != nil {
		return err
	}
	for _, i := range left {
		if i != k.gate {
			return nil
		}
	}
	k.mu.Lock()
	err = transact(k.own.remove)
	k.mu.Unlock()
	if missing(err) {
		err = nil // the table is gone
	}
	return errors.Join(err, k.remove(k.gate))
}

// logGroup is the group of netfilter's log for a gate: a group has one reader,
// and a gate one server.
func logGroup(gate int) uint16 { return uint16(20_000 + gate%40_000) }
