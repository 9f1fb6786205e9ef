package hostnet

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const tableName = "pandastack"

// The sets and maps that servers share. What depends on the machine or on a
// slot is an element of one of them, so that the rules of the shared chains are
// always the same and no server has a reason to rewrite them.
var (
	deniedSet    = nftables.Set{Name: "denied", KeyType: nftables.TypeIPAddr, Interval: true}
	resolverSet  = nftables.Set{Name: "resolvers", KeyType: nftables.TypeIPAddr, Interval: true}
	closedSet    = nftables.Set{Name: "closed", KeyType: nftables.TypeIFName} // uplinks that forward for our sake only
	gateSet      = nftables.Set{Name: "gates", KeyType: nftables.TypeIPAddr}
	transportSet = nftables.Set{Name: "transports", KeyType: nftables.TypeInetProto}
	memberSet    = nftables.Set{Name: "members", Concatenation: true,
		KeyType: nftables.MustConcatSetType(nftables.TypeIP6Addr, nftables.TypeIPAddr)} // of groups: the group's id and an address
	refusedSet = nftables.Set{Name: "refused", KeyType: nftables.TypeIPAddr, Dynamic: true, HasTimeout: true,
		Timeout: refusedMemory, Size: 1 << 16} // how often each address was refused lately

	// By the group of the link a packet came from.
	arriveMap = verdicts("arrive", nftables.TypeDevGroup)
	namesMap  = verdicts("names", nftables.TypeDevGroup)
	leaveMap  = verdicts("leave", nftables.TypeDevGroup)
	refuseMap = verdicts("refuse", nftables.TypeDevGroup)
	// By the name of the link.
	rulesMap = verdicts("rules", nftables.TypeIFName)
	linksMap = verdicts("links", nftables.TypeIFName)
)

func verdicts(name string, key nftables.SetDatatype) nftables.Set {
	return nftables.Set{Name: name, IsMap: true, KeyType: key, DataType: nftables.TypeVerdict}
}

// policy is what of the table depends on the machine. Every server sees the
// same, so they may overwrite each other's.
type policy struct {
	resolvers []netip.Addr // DNS that is let through to a denied range
	// closed are uplinks that forward for our sake only: on a host that is no
	// router, they pass nothing on except to and from sandboxes.
	closed []string
}

func (p policy) equal(q policy) bool {
	return slices.Equal(p.resolvers, q.resolvers) && slices.Equal(p.closed, q.closed)
}

func (k *kernel) policyFor(ups []uplink) policy {
	p := policy{resolvers: nameservers(k.isLocal)}
	if routesAnyway() {
		return p
	}
	before := readState().Forwarding
	for _, u := range ups {
		_, ours := before[u.name]
		if ours || getSysctl("ipv4", u.name, "forwarding") == "0" {
			p.closed = append(p.closed, u.name)
		}
	}
	return p
}

// newTable replaces the whole table: whatever an earlier version of this
// program, or another, left of it is gone.
func newTable(r *ruleset) {
	r.conn.AddTable(r.table) // so that there is one to delete
	r.conn.DelTable(r.table)
	r.conn.AddTable(r.table)
	buildShared(r)
}

// setPolicy changes what depends on the machine.
func setPolicy(r *ruleset, p policy) {
	r.refill(r.named(resolverSet), intervals(singles(p.resolvers)))
	var closed []nftables.SetElement
	for _, name := range p.closed {
		closed = append(closed, nftables.SetElement{Key: linkName16(name)})
	}
	r.refill(r.named(closedSet), closed)
}

// buildShared writes the chains of all servers. A packet of a slot passes two
// of them: one as it arrives and one as it leaves for the world or for the host.
func buildShared(r *ruleset) {
	for _, s := range []nftables.Set{deniedSet, resolverSet, closedSet, gateSet, transportSet, memberSet, refusedSet,
		arriveMap, namesMap, leaveMap, refuseMap, rulesMap, linksMap} {
		r.addSet(r.named(s))
	}
	r.put(r.named(deniedSet), intervals(deniedPrefixes())...)
	r.put(r.named(transportSet), nftables.SetElement{Key: []byte{unix.IPPROTO_TCP}}, nftables.SetElement{Key: []byte{unix.IPPROTO_UDP}})

	// Before any translation of destinations, by whomever: what a guest
	// addresses to the host does not get in by way of a published port.
	pre := r.base("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle)
	guest := r.chain("guest")
	r.rule(pre, fromSlot(), jump(guest))
	r.rule(guest, notIPv4(), drop())
	r.rule(guest, sourceNotRoutedBack(), drop())
	r.rule(guest, conn(ctKnown), accept())
	r.rule(guest, conn(expr.CtStateBitINVALID), drop())
	r.rule(guest, lookup(expr.MetaKeyIIFGROUP, r.named(arriveMap)))
	r.rule(guest, drop()) // of a server whose rules are not here

	redirect := r.base("redirect", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	r.rule(redirect, fromSlot(), lookup(expr.MetaKeyIIFGROUP, r.named(namesMap)))

	buildInput(r)
	buildForward(r)

	post := r.base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	r.rule(post, fromSlot(), notToSlot(), []expr.Any{&expr.Masq{}})
}

// buildInput: the host dials guests, and they dial nothing of it but the gate,
// which is there for nobody else.
func buildInput(r *ruleset) {
	in := r.base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	visit := r.chain("visit")
	r.rule(in, fromSlot(), goTo(visit))
	r.rule(in, onlyIPv4(), notFromLink("lo"), destinationIn(r.named(gateSet)), drop())
	r.rule(visit, conn(ctKnown), accept())
	for _, transport := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		r.rule(visit, destinationIn(r.named(gateSet)), port(transport, gateDNSPort), accept())
	}
	r.rule(visit, destinationIn(r.named(gateSet)), port(unix.IPPROTO_TCP, gateProxyPort), redirected(), accept())
	r.rule(visit, drop())
}

func buildForward(r *ruleset) {
	fwd := r.base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	egress, between := r.chain("egress"), r.chain("between")
	r.rule(fwd, fromSlot(), jump(egress))
	r.rule(fwd, toSlot(), conn(ctKnown), accept())
	r.rule(fwd, toSlot(), drop())
	r.rule(fwd, lookup(expr.MetaKeyIIFNAME, r.named(closedSet)), drop())

	r.rule(egress, conn(ctKnown), accept())
	r.rule(egress, toSlot(), goTo(between))
	r.rule(egress, lookup(expr.MetaKeyIIFGROUP, r.named(leaveMap)))
	r.rule(egress, drop())

	r.rule(between, lookup(expr.MetaKeyIIFNAME, r.named(linksMap)))
	r.rule(between, lookup(expr.MetaKeyIIFGROUP, r.named(refuseMap)))
	r.rule(between, drop())
}

// removeRules removes the table; one that is not there is fine.
func removeRules() error {
	return transact(func(r *ruleset) {
		r.conn.AddTable(r.table)
		r.conn.DelTable(r.table)
	})
}

// sharedInPlace and ownInPlace tell a table that was flushed or removed, which
// firewall managers do; it is no defence against root.
func sharedInPlace() bool { return inPlace(counted(buildShared)) }

// looks is how often a table that seems damaged is looked at. A listing that is
// read while another server changes the table comes out torn, and putting back
// what is there takes from the others what is theirs.
const looks = 5

// inPlace compares the number of rules by chain.
func inPlace(counts map[string]int) bool {
	for look := range looks {
		if look > 0 {
			time.Sleep(time.Duration(look) * 2 * time.Millisecond)
		}
		if asCounted(counts) {
			return true
		}
	}
	return false
}

func asCounted(counts map[string]int) bool {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return false
	}
	defer conn.CloseLasting()
	t, err := conn.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	if err != nil || t == nil {
		return false
	}
	for name, want := range counts {
		rules, err := conn.GetRules(t, &nftables.Chain{Name: name, Table: t})
		if err != nil || len(rules) != want {
			return false
		}
	}
	return true
}
