package hostnet

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/pandastack/pandastack/api"
)

// inForce is what the kernel holds for one slot.
type inForce struct {
	rules Rules
	known bool // not so for a slot that an earlier process gave out
	gone  bool // being removed: nothing is in the table, and nothing comes there
}

// The chains of a slot are named by its index.
const (
	rulesChains = "rules-"
	linksChains = "links-"
)

// of is what is in force for a slot: the default for one that nothing was
// applied to. k.mu is held.
func (k *kernel) of(i int) inForce {
	if f, ok := k.slots[i]; ok {
		return f
	}
	return inForce{rules: DefaultRules(), known: true}
}

// applyTries is how often a table that vanishes under a change is put back.
const applyTries = 3

// apply puts rules in force. A slot that is fresh has no connections.
func (k *kernel) apply(ctx context.Context, i int, r Rules, fresh bool) error {
	err := k.applyOnce(i, r, fresh)
	for try := 0; missing(err) && try < applyTries; try++ { // somebody removed the table: put it back
		if _, err := k.ensureRules(ctx); err != nil {
			return err
		}
		err = k.applyOnce(i, r, fresh)
	}
	return refusedBy(err, "the rules of network slot "+strconv.Itoa(i)+" cannot be put in force")
}

// applyOnce leaves what was in force when it fails, if that is known.
func (k *kernel) applyOnce(i int, r Rules, fresh bool) error {
	c, err := k.change(i, r)
	if err != nil || !c.narrower || fresh {
		return err
	}
	if err = k.cut(i, c); err != nil && c.before.known {
		_, back := k.change(i, c.before.rules)
		err = errors.Join(err, back)
	}
	return err
}

// changed says what a change of rules means for connections.
type changed struct {
	before   inForce
	narrower bool // what was allowed may be denied now
	linked   bool // others may have begun connections to the slot
	judge    judge
}

func (k *kernel) change(i int, r Rules) (changed, error) {
	turn := &k.turns[i%len(k.turns)]
	turn.Lock()
	defer turn.Unlock()
	k.mu.Lock()
	before := k.of(i)
	k.mu.Unlock()
	switch {
	case before.gone:
		return changed{}, errRemoved(i)
	case before.known && before.rules.equal(r):
		return changed{}, nil
	}
	// The cap takes long and is nobody else's affair: it does not hold k.mu.
	var c changed
	err := k.recap(i, before, r)
	if err == nil {
		c, err = k.changeTable(i, before, r)
	}
	if err != nil && before.known {
		err = errors.Join(err, k.recap(i, inForce{rules: r}, before.rules))
	}
	return c, err
}

func (k *kernel) changeTable(i int, before inForce, r Rules) (changed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of(i).gone {
		return changed{}, errRemoved(i)
	}
	if err := k.enforce(i, before, r); err != nil {
		if before.known {
			err = errors.Join(err, k.enforce(i, inForce{rules: r}, before.rules))
		}
		return changed{}, err
	}
	k.slots[i] = inForce{rules: r, known: true}
	return changed{
		before:   before,
		narrower: !before.known || !r.wider(before.rules),
		linked:   !before.known || len(before.rules.Groups) > 0,
		judge:    k.judge(i, r, k.addressKinds()),
	}, nil
}

func errRemoved(i int) error {
	return api.Errorf(api.CodeNetworkUnavailable, "network slot %d is being removed", i)
}

// recap brings the slot's cap from what was in force to that of r.
func (k *kernel) recap(i int, before inForce, r Rules) error {
	if before.known && before.rules.Mbps == r.Mbps {
		return nil
	}
	return k.cap(i, r.Mbps)
}

// wider reports whether r surely denies nothing that q allows.
func (r Rules) wider(q Rules) bool {
	return r.kind() == kindOpen && !slices.ContainsFunc(q.Groups, func(g string) bool { return !slices.Contains(r.Groups, g) })
}

func (r Rules) kind() kind {
	switch {
	case r.Offline, !r.ByName && !r.Default && len(r.Allow) == 0:
		return kindOffline
	case r.ByName:
		return kindNamed
	case r.Default && len(r.Deny) == 0:
		return kindOpen
	}
	return kindRuled
}

// enforce changes the kernel. What may fail comes first, and the link's group
// where the chain it leads to is there: it is the switch between kinds, as the
// transaction is within one.
func (k *kernel) enforce(i int, before inForce, r Rules) error {
	l, err := k.host.LinkByName(linkName(i))
	if err != nil {
		return unavailable(err, "the link of network slot "+strconv.Itoa(i)+" is gone")
	}
	if l.Attrs().Alias != k.cfg.alias() {
		return api.Errorf(api.CodeNetworkUnavailable, "network slot %d belongs to another server", i)
	}
	toRules := r.kind() == kindRuled
	if !toRules {
		if err := k.setKind(l, r.kind()); err != nil {
			return err
		}
	}
	if toRules || k.hasTableState(before) || len(r.Groups) > 0 {
		if err := k.writeSlot(i, before, r); err != nil {
			return err
		}
	}
	if toRules {
		return k.setKind(l, kindRuled)
	}
	return nil
}

func (k *kernel) hasTableState(f inForce) bool {
	return !f.known || f.rules.kind() == kindRuled || len(f.rules.Groups) > 0
}

func (k *kernel) setKind(l netlink.Link, to kind) error {
	group := k.cfg.linkGroup(to)
	if l.Attrs().Group == group {
		return nil
	}
	if err := k.host.LinkSetGroup(l, int(group)); err != nil {
		return unavailable(err, "the group of "+l.Attrs().Name+" cannot be set")
	}
	return nil
}

// writeSlot is the one transaction that changes a slot's chains and groups.
func (k *kernel) writeSlot(i int, before inForce, r Rules) error {
	groups := k.cfg.groupIDs(before.rules.Groups)
	if !before.known {
		var err error
		if groups, err = k.groupsOf(i); err != nil {
			return err
		}
	}
	return transact(func(b *ruleset) { k.buildSlot(b, i, groups, r) })
}

func (k *kernel) buildSlot(b *ruleset, i int, groups []groupID, r Rules) {
	k.buildRules(b, i, r)
	k.buildLinks(b, i, r)
	b.take(b.named(memberSet), k.memberships(i, groups)...)
	b.put(b.named(memberSet), k.memberships(i, k.cfg.groupIDs(r.Groups))...)
}

// slotsAtOnce is how many slots one transaction puts back.
const slotsAtOnce = 32

// restoreSlots writes all slots' rules into a table that has lost them. A slot
// whose rules are not known stays shut until they are. k.mu is held.
func (k *kernel) restoreSlots() error {
	var lost []int
	for i, f := range k.slots {
		if f.known && k.hasTableState(f) {
			lost = append(lost, i)
		}
	}
	for part := range slices.Chunk(lost, slotsAtOnce) {
		err := transact(func(b *ruleset) {
			for _, i := range part {
				k.buildSlot(b, i, nil, k.slots[i].rules)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetSlot removes what the table has of a slot, and lets nothing come there
// until dropSlot. It is the first step of a removal: a link under lists that are
// not there is refused, and one without a group meets nobody.
func (k *kernel) forgetSlot(i int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.of(i); k.hasTableState(f) {
		// With the table gone, so is this.
		if err := k.writeSlot(i, f, DefaultRules()); err != nil && !missing(err) {
			return err
		}
	}
	k.slots[i] = inForce{rules: DefaultRules(), known: true, gone: true}
	return nil
}

// dropSlot is the last step of a removal: the index is as if it never was used.
func (k *kernel) dropSlot(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.slots, i)
}

// buildRules writes the chain of a slot whose kind needs one, and else removes it.
func (k *kernel) buildRules(b *ruleset, i int, r Rules) {
	chain := b.chain(rulesChains + strconv.Itoa(i))
	element := leadsTo(linkName16(linkName(i)), chain.Name)
	b.put(b.named(rulesMap), element)
	if r.kind() != kindRuled {
		b.take(b.named(rulesMap), element)
		b.removeChain(chain.Name)
		return
	}
	refuse := &nftables.Chain{Name: k.cfg.chains().refuse}
	if r.Default {
		addRanges(b, chain, r.Allow, accept())
		addRanges(b, chain, r.Deny, goTo(refuse))
		b.rule(chain, accept())
		return
	}
	addRanges(b, chain, r.Deny, goTo(refuse))
	addRanges(b, chain, r.Allow, accept())
	b.rule(chain, goTo(refuse))
}

// buildLinks writes the chain that decides on packets to other slots.
func (k *kernel) buildLinks(b *ruleset, i int, r Rules) {
	chain := b.chain(linksChains + strconv.Itoa(i))
	element := leadsTo(linkName16(linkName(i)), chain.Name)
	b.put(b.named(linksMap), element)
	if len(r.Groups) == 0 {
		b.take(b.named(linksMap), element)
		b.removeChain(chain.Name)
		return
	}
	for _, id := range k.cfg.groupIDs(r.Groups) {
		b.rule(chain, destinationSharesGroup(id, b.named(memberSet)), accept())
	}
	b.rule(chain, goTo(&nftables.Chain{Name: k.cfg.chains().refuse}))
}

func (k *kernel) memberships(i int, groups []groupID) []nftables.SetElement {
	addr := k.cfg.slot(i).Address.Addr().As4()
	var out []nftables.SetElement
	for _, id := range groups {
		out = append(out, nftables.SetElement{Key: append(id[:], addr[:]...)})
	}
	return out
}

// groupsOf reads the groups of a slot that an earlier process put there.
func (k *kernel) groupsOf(i int) ([]groupID, error) {
	addr := k.cfg.slot(i).Address.Addr()
	var out []groupID
	err := eachMember(func(id groupID, a netip.Addr) {
		if a == addr {
			out = append(out, id)
		}
	})
	return out, err
}

func eachMember(do func(groupID, netip.Addr)) error {
	conn, err := openTables()
	if err != nil {
		return err
	}
	elements, err := conn.GetSetElements(&nftables.Set{Table: ourTable(), Name: memberSet.Name, KeyType: memberSet.KeyType})
	for _, e := range elements {
		if len(e.Key) == 20 {
			do(groupID(e.Key[:16]), netip.AddrFrom4([4]byte(e.Key[16:])))
		}
	}
	return err
}

// indexesInTable are the slots, of all servers, that the table has chains for or
// that are in groups.
func (k *kernel) indexesInTable() (map[int]bool, error) {
	found := map[int]bool{}
	err := eachMember(func(_ groupID, a netip.Addr) {
		if i, ok := k.cfg.indexOf(a); ok {
			found[i] = true
		}
	})
	if missing(err) { // with the table gone, so are they
		return nil, nil
	}
	var chains []*nftables.Chain
	if err == nil {
		var conn *nftables.Conn
		if conn, err = openTables(); err == nil {
			chains, err = conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
		}
	}
	if err != nil {
		return nil, refusedBy(err, "the rules of sandbox networks cannot be listed")
	}
	for _, c := range chains {
		for _, prefix := range []string{rulesChains, linksChains} {
			if i, ok := slotIndex(c.Name, prefix); ok && c.Table.Name == tableName {
				found[i] = true
			}
		}
	}
	return found, nil
}

// addRanges adds a rule for each range of ports with the addresses it is for,
// so that long lists are looked up and not walked.
func addRanges(b *ruleset, chain *nftables.Chain, list []Range, verdict []expr.Any) {
	type ports struct{ first, last uint16 }
	byPorts := map[ports][]netip.Prefix{}
	for _, x := range list {
		p := ports{x.First, x.Last}
		if x.Last == 0 {
			p = ports{}
		}
		byPorts[p] = append(byPorts[p], x.Prefix)
	}
	order := make([]ports, 0, len(byPorts))
	for p := range byPorts {
		order = append(order, p)
	}
	slices.SortFunc(order, func(a, b ports) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
	})
	for _, p := range order {
		var match []expr.Any
		if p.last != 0 {
			match = append(lookup(expr.MetaKeyL4PROTO, b.named(transportSet)), portWithin(p.first, p.last)...)
		}
		for _, where := range destinations(b, byPorts[p]) {
			b.rule(chain, match, where, verdict)
		}
	}
}

// destinations are conditions that together match the prefixes.
func destinations(b *ruleset, prefixes []netip.Prefix) [][]expr.Any {
	if len(prefixes) == 1 {
		return [][]expr.Any{destinationWithin(prefixes[0])}
	}
	elements := intervals(prefixes)
	if len(elements) == 1 && binaryZero(elements[0].Key) { // every address
		return [][]expr.Any{nil}
	}
	var out [][]expr.Any
	for part := range slices.Chunk(elements, maxSetElements) {
		out = append(out, destinationIn(b.anonymous(part)))
	}
	return out
}

func binaryZero(key []byte) bool {
	return !slices.ContainsFunc(key, func(b byte) bool { return b != 0 })
}
