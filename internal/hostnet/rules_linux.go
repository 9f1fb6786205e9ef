package hostnet

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const tableName = "pandastack"

// denied is what no sandbox reaches, besides the host and other sandboxes:
// everything that is not the public internet and might be somebody's inside.
var denied = []string{
	"0.0.0.0/8",      // this network
	"10.0.0.0/8",     // private
	"100.64.0.0/10",  // carrier
	"127.0.0.0/8",    // loopback
	"169.254.0.0/16", // link-local, cloud metadata
	"172.16.0.0/12",  // private
	"192.0.0.0/24",   // protocol assignments
	"192.168.0.0/16", // private
	"198.18.0.0/15",  // benchmarks
	"224.0.0.0/3",    // multicast, reserved, broadcast
}

// policy is what the rules depend on. It is the same for every server of the
// machine, so they may overwrite each other's table.
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

// installRules replaces the whole table in one transaction: there is no moment
// without rules, and what an earlier version of this program left is gone.
func installRules(p policy) error {
	conn, err := nftables.New()
	if err != nil {
		return unavailable(err, "nftables cannot be opened")
	}
	t := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(t) // so that there is one to delete
	conn.DelTable(t)
	r := &ruleset{conn: conn, table: conn.AddTable(t)}
	buildRules(r, p)
	if r.err != nil {
		return unavailable(r.err, "the rules of sandbox networks cannot be written")
	}
	if err := conn.Flush(); err != nil {
		if errors.Is(err, unix.ENOENT) { // an expression or hook that does not exist
			err = errors.Join(unix.EOPNOTSUPP, err)
		}
		return unavailable(err, "the rules of sandbox networks cannot be installed (nftables)")
	}
	return nil
}

func buildRules(r *ruleset, p policy) {
	deniedSet := r.set("denied", ranges(denied))
	resolverSet := r.set("resolvers", addresses(p.resolvers))

	// Before any translation of destinations, by whomever: what a guest
	// addresses to the host does not get in by way of a published port.
	pre := r.base("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle)
	guest := r.chain("guest")
	r.rule(pre, fromSlot(), jump(guest))
	r.rule(guest, notIPv4(), drop())
	r.rule(guest, sourceNotRoutedBack(), drop())
	r.rule(guest, conn(ctKnown), accept())
	r.rule(guest, conn(expr.CtStateBitINVALID), drop())
	r.rule(guest, destinationNotUnicast(), drop())

	// The host dials guests, they never dial it.
	in := r.base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	r.rule(in, fromSlot(), conn(ctKnown), accept())
	r.rule(in, fromSlot(), drop())

	fwd := r.base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	egress := r.chain("egress")
	r.rule(fwd, fromSlot(), jump(egress))
	r.rule(fwd, toSlot(), conn(ctKnown), accept())
	r.rule(fwd, toSlot(), drop())
	for _, name := range p.closed {
		r.rule(fwd, fromLink(name), drop())
	}

	r.rule(egress, toSlot(), drop())
	r.rule(egress, conn(ctKnown), accept())
	if len(p.resolvers) > 0 {
		r.rule(egress, destinationIn(resolverSet), port(unix.IPPROTO_UDP, 53), accept())
		r.rule(egress, destinationIn(resolverSet), port(unix.IPPROTO_TCP, 53), accept())
	}
	r.rule(egress, destinationIn(deniedSet), drop())
	r.rule(egress, accept())

	post := r.base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	r.rule(post, fromSlot(), notToSlot(), []expr.Any{&expr.Masq{}})
}

// removeRules removes the table; one that is not there is fine.
func removeRules() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(t)
	conn.DelTable(t)
	return conn.Flush()
}

// rulesInPlace compares the number of rules by chain. It tells a table that was
// flushed or removed, which firewall managers do; it is no defence against root.
func rulesInPlace(p policy) bool {
	conn, err := nftables.New()
	if err != nil {
		return false
	}
	t, err := conn.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	if err != nil || t == nil {
		return false
	}
	for name, want := range countRules(p) {
		rules, err := conn.GetRules(t, &nftables.Chain{Name: name, Table: t})
		if err != nil || len(rules) != want {
			return false
		}
	}
	return true
}

// countRules builds the rules without sending them.
func countRules(p policy) map[string]int {
	r := &ruleset{counts: map[string]int{}}
	buildRules(r, p)
	return r.counts
}
