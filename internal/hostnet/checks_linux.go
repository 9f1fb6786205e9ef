package hostnet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (k *kernel) checks(ctx context.Context, cfg Config) []Check {
	if os.Geteuid() != 0 {
		return []Check{{Name: "root", Detail: "sandbox networks need root"}}
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return []Check{{Name: "netlink", Detail: err.Error()}}
	}
	defer h.Close()
	out := []Check{checkVeth(h)}
	for _, f := range nftFeatures() {
		if ctx.Err() != nil {
			return out
		}
		out = append(out, f.check())
	}
	fresh := &kernel{host: h, cfg: cfg}
	out = append(out, fresh.checkPrefix(), fresh.checkUplink(), fresh.checkResolvers())
	out = append(out, checkCaps(), checkLog())
	if cfg.Taps {
		out = append(out, checkTaps())
	}
	return append(out, checkFirewalls())
}

// checkVeth makes a namespace and a veth pair that end with the check.
func checkVeth(h *netlink.Handle) Check {
	c := Check{Name: "network namespaces and veth"}
	n, err := newNetns()
	if err != nil {
		c.Detail = "a network namespace cannot be made: " + err.Error()
		return c
	}
	defer n.close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("psprobe%d", rand.IntN(1e7))
	link := netlink.NewVeth(attrs)
	link.PeerName = guestLink
	link.PeerNamespace = netlink.NsFd(n.file.Fd())
	if err := h.LinkAdd(link); err != nil {
		c.Detail = "a veth pair cannot be made (kernel module veth): " + err.Error()
		return c
	}
	if err := h.LinkDel(link); err != nil {
		c.Detail = "a veth pair cannot be removed: " + err.Error()
		return c
	}
	c.OK, c.Detail = true, "available"
	return c
}

// nftFeature is one thing the rules need of the kernel.
type nftFeature struct {
	name  string
	chain nftables.Chain
	rule  func(r *ruleset) []expr.Any
}

func nftFeatures() []nftFeature {
	pre := nftables.Chain{Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle}
	to := nftables.Chain{Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest}
	from := nftables.Chain{Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}
	always := func(exprs []expr.Any) func(*ruleset) []expr.Any { return func(*ruleset) []expr.Any { return exprs } }
	return []nftFeature{
		{"nftables", pre, always(fromSlot())},
		{"nftables connection tracking", pre, always(conn(ctKnown))},
		{"nftables route lookup (fib)", pre, always(sourceNotRoutedBack())},
		{"nftables address translation (masquerade)", from, always(append(fromSlot(), &expr.Masq{}))},
		{"rules for each sandbox", pre, slotRules},
		{"rules by name (redirect)", to, always(append(protocol(unix.IPPROTO_TCP), destinationBecomes(netip.IPv4Unspecified(), gateProxyPort)...))},
	}
}

// slotRules is one of everything that the rules of a sandbox need.
func slotRules(r *ruleset) []expr.Any {
	arrive, members := r.named(arriveMap), r.named(memberSet)
	r.addSet(arrive)
	r.addSet(members)
	some := r.anonymous(intervals(deniedPrefixes()))
	return slices.Concat(destinationSharesGroup(groupID{}, members), destinationIn(some),
		lookup(expr.MetaKeyIIFGROUP, arrive), reject(unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED))
}

// check adds a table with the feature and deletes it in the same transaction,
// so that it never takes effect.
func (f nftFeature) check() Check {
	c := Check{Name: f.name}
	conn, err := openTables()
	if err == nil {
		r := &ruleset{conn: conn, table: &nftables.Table{Name: fmt.Sprintf("%s_probe_%d", tableName, os.Getpid()), Family: nftables.TableFamilyINet}}
		conn.AddTable(r.table)
		chain := f.chain
		chain.Name, chain.Table = "probe", r.table
		conn.AddChain(&chain)
		r.rule(&chain, f.rule(r))
		conn.DelTable(r.table)
		err = errors.Join(r.err, conn.Flush())
	}
	if err != nil {
		c.Detail = "the kernel refuses it: " + err.Error()
		return c
	}
	c.OK, c.Detail = true, "available"
	return c
}

// checkCaps puts a cap on the loopback of a namespace that ends with the check.
func checkCaps() Check {
	c := Check{Name: "bandwidth caps (tbf)", OK: true, Warning: true}
	n, err := newNetns()
	if err == nil {
		defer n.close()
		var lo netlink.Link
		if lo, err = n.route.LinkByName("lo"); err == nil {
			err = n.route.QdiscReplace(bucket(lo, 1))
		}
	}
	if err != nil {
		c.Detail = "sandboxes with a bandwidth cap cannot be made (kernel module sch_tbf): " + err.Error()
		return c
	}
	c.Warning, c.Detail = false, "available"
	return c
}

// checkLog: without it sandboxes work as well, and who was contacted is not known.
func checkLog() Check {
	c := Check{Name: "connection log", OK: true, Warning: true}
	probe := nftFeature{chain: nftables.Chain{Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle},
		rule: func(r *ruleset) []expr.Any {
			meter := r.named(refusedSet)
			r.addSet(meter)
			return logRefused(meter, logGroup(0))
		}}
	if p := probe.check(); !p.OK {
		c.Detail = "refused connections cannot be logged (nft_log, nfnetlink_log): " + p.Detail
		return c
	}
	if _, err := connections(netip.IPv4Unspecified(), ctBySource); err != nil {
		c.Detail = "the kernel does not show its connections (nf_conntrack_netlink): " + err.Error()
		return c
	}
	if f, err := os.OpenFile(countingPath(countingSettings[0]), os.O_WRONLY, 0); err != nil {
		c.Detail = "without bytes, since the kernel does not let them be counted: " + err.Error()
		return c
	} else {
		f.Close()
	}
	c.Warning, c.Detail = false, "available"
	return c
}

func (k *kernel) checkPrefix() Check {
	c := Check{Name: "sandbox address range"}
	if err := k.checkRange(k.cfg); err != nil {
		c.Detail = err.Error()
		return c
	}
	c.OK, c.Detail = true, fmt.Sprintf("%s, %d slots", k.cfg.Prefix, k.cfg.slots())
	return c
}

func (k *kernel) checkUplink() Check {
	c := Check{Name: "uplink", OK: true}
	ups, err := k.uplinks()
	if err != nil {
		return Check{Name: c.Name, Detail: err.Error()}
	}
	if len(ups) == 0 {
		c.Warning, c.Detail = true, "no default route: sandboxes have no internet"
		return c
	}
	var names []string
	for _, u := range ups {
		names = append(names, fmt.Sprintf("%s (mtu %d)", u.name, u.mtu))
	}
	c.Detail = strings.Join(names, ", ")
	return c
}

func (k *kernel) checkResolvers() Check {
	c := Check{Name: "resolvers", OK: true}
	list := nameservers(k.isLocal)
	if len(list) == 0 {
		c.Warning, c.Detail = true, "the host has none that a sandbox can reach"
		return c
	}
	var names []string
	for _, a := range list {
		name := a.String()
		if isDenied(a) {
			name += " (private, let through for DNS)"
		}
		names = append(names, name)
	}
	c.Detail = strings.Join(names, ", ")
	return c
}

// checkFirewalls looks for chains of others that drop what nobody accepted. A
// packet of a sandbox must pass them too, and we do not edit them.
func checkFirewalls() Check {
	c := Check{Name: "other firewalls", OK: true, Warning: true}
	conn, err := nftables.New()
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	chains, err := conn.ListChains()
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	var details []string
	if found := droppingAt(chains, *nftables.ChainHookForward); found != "" {
		details = append(details, "forwarded packets are dropped by default in "+found+
			": allow interfaces ps-* there (with Docker, in its chain DOCKER-USER), else sandboxes have no internet")
	}
	if found := droppingAt(chains, *nftables.ChainHookInput); found != "" {
		details = append(details, fmt.Sprintf("incoming packets are dropped by default in %s: allow interfaces ps-* to ports %d and %d there, else "+
			"sandboxes wait for names and rules by name let nothing through", found, gateDNSPort, gateProxyPort))
	}
	if text, err := os.ReadFile("/proc/net/ip_tables_names"); err == nil && strings.Contains(string(text), "filter") && len(details) == 0 {
		details = append(details, "rules of legacy iptables exist and are not examined; they must let interfaces ps-* forward")
	}
	if c.Detail = strings.Join(details, "; "); c.Detail == "" {
		c.Warning, c.Detail = false, "none drops packets of sandboxes by default"
	}
	return c
}

// droppingAt names the chains of others that drop by default at a hook.
func droppingAt(chains []*nftables.Chain, hook nftables.ChainHook) string {
	var found []string
	for _, ch := range chains {
		if ch.Table == nil || ch.Table.Name == tableName || ch.Hooknum == nil || ch.Policy == nil {
			continue
		}
		family := ch.Table.Family
		if (family == nftables.TableFamilyINet || family == nftables.TableFamilyIPv4) && *ch.Hooknum == hook && *ch.Policy == nftables.ChainPolicyDrop {
			found = append(found, ch.Table.Name+"/"+ch.Name)
		}
	}
	return strings.Join(found, ", ")
}
