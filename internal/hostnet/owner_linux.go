package hostnet

import (
	"hash/fnv"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// kind is which rules a slot is under. The group of its host end says it, above
// it whose it is. A packet of a link whose group is not known is dropped, so a
// table that was removed and put back by another server lets nothing through.
type kind uint32

const (
	kindOpen    kind = 1 + iota // the internet
	kindRuled                   // what its chain says
	kindNamed                   // what the gate's proxy says
	kindOffline                 // nothing
	kindGate                    // no sandbox: where the server listens

	kindMask = 7
)

// linkGroup is the number of a server's links of a kind.
func (c Config) linkGroup(k kind) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Owner))
	// The kernel's number is signed, and 0 is every other interface.
	return h.Sum32()&0x7fffffff&^kindMask | uint32(k)
}

func (c Config) kindOf(group uint32) kind {
	if group&^kindMask != c.linkGroup(0) {
		return 0
	}
	return kind(group & kindMask)
}

// owned names the chains and the set of one server.
type owned struct{ arrive, names, floor, open, ruled, refuse, pass string }

func (c Config) chains() owned {
	of := func(what string) string { return what + "-" + c.Owner }
	return owned{of("arrive"), of("names"), of("floor"), of("open"), of("ruled"), of("refuse"), of("pass")}
}

// ownPart is what a server has in the table besides its slots' rules.
type ownPart struct {
	cfg  Config
	gate netip.Addr
	log  uint16 // group of netfilter's log
}

func (p ownPart) passSet() nftables.Set {
	return nftables.Set{Name: p.cfg.chains().pass, KeyType: nftables.TypeIPAddr, Interval: true}
}

// build writes the part anew, whatever is there of it.
func (p ownPart) build(r *ruleset) {
	n := p.cfg.chains()
	pass := r.named(p.passSet())
	r.addSet(pass)
	r.refill(pass, intervals(p.cfg.Pass))

	refuse := r.chain(n.refuse)
	r.rule(refuse, logRefused(r.named(refusedSet), p.log))
	r.rule(refuse, protocol(unix.IPPROTO_TCP), reject(unix.NFT_REJECT_TCP_RST, 0))
	r.rule(refuse, reject(unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED))

	p.buildArrival(r, refuse)
	p.buildNames(r, pass)

	floor := r.chain(n.floor)
	r.rule(floor, destinationIn(pass), back())
	r.rule(floor, destinationIn(r.named(resolverSet)), port(unix.IPPROTO_UDP, 53), back())
	r.rule(floor, destinationIn(r.named(resolverSet)), port(unix.IPPROTO_TCP, 53), back())
	r.rule(floor, destinationIn(r.named(deniedSet)), goTo(refuse))

	open := r.chain(n.open)
	r.rule(open, jump(floor))
	r.rule(open, accept())

	ruled := r.chain(n.ruled)
	r.rule(ruled, jump(floor))
	r.rule(ruled, lookup(expr.MetaKeyIIFNAME, r.named(rulesMap)))
	r.rule(ruled, goTo(refuse)) // of a slot whose rules are not here

	p.eachElement(r.put, r)
}

// buildArrival: of the host, a guest may speak to the resolver of its server.
func (p ownPart) buildArrival(r *ruleset, refuse *nftables.Chain) {
	arrive := r.chain(p.cfg.chains().arrive)
	gate := destinationWithin(netip.PrefixFrom(p.gate, 32))
	r.rule(arrive, gate, port(unix.IPPROTO_UDP, gateDNSPort), accept())
	r.rule(arrive, gate, port(unix.IPPROTO_TCP, gateDNSPort), accept())
	r.rule(arrive, destinationKind(expr.CmpOpEq, unix.RTN_LOCAL), goTo(refuse))
	r.rule(arrive, destinationKind(expr.CmpOpNeq, unix.RTN_UNICAST), drop())
}

// buildNames hands to the proxy what the floor lets through.
func (p ownPart) buildNames(r *ruleset, pass *nftables.Set) {
	names := r.chain(p.cfg.chains().names)
	proxy := destinationBecomes(p.gate, gateProxyPort)
	r.rule(names, destinationWithin(p.cfg.Prefix), back())
	r.rule(names, destinationIn(pass), protocol(unix.IPPROTO_TCP), proxy)
	r.rule(names, destinationIn(r.named(deniedSet)), back())
	r.rule(names, protocol(unix.IPPROTO_TCP), proxy)
}

// remove takes the part away, whatever is there of it.
func (p ownPart) remove(r *ruleset) {
	p.build(r)
	p.eachElement(r.take, r)
	n := p.cfg.chains()
	for _, name := range []string{n.arrive, n.names, n.open, n.ruled, n.floor, n.refuse} {
		r.chain(name) // so that none refers to another
	}
	for _, name := range []string{n.arrive, n.names, n.open, n.ruled, n.floor, n.refuse} {
		r.removeChain(name)
	}
	r.conn.DelSet(r.named(p.passSet()))
}

// eachElement names the elements by which the shared chains find the part.
func (p ownPart) eachElement(do func(*nftables.Set, ...nftables.SetElement), r *ruleset) {
	n := p.cfg.chains()
	gate := p.gate.As4()
	do(r.named(gateSet), nftables.SetElement{Key: gate[:]})
	by := func(k kind, chain string) nftables.SetElement { return leadsTo(word(p.cfg.linkGroup(k)), chain) }
	for _, k := range []kind{kindOpen, kindRuled, kindNamed, kindOffline} {
		do(r.named(arriveMap), by(k, n.arrive))
		do(r.named(refuseMap), by(k, n.refuse))
	}
	do(r.named(namesMap), by(kindNamed, n.names))
	do(r.named(leaveMap), by(kindOpen, n.open), by(kindRuled, n.ruled), by(kindNamed, n.refuse), by(kindOffline, n.refuse))
}

func (p ownPart) inPlace() bool { return inPlace(counted(p.build)) }
