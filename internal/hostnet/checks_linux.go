package hostnet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
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
	return append(out, checkForwardPolicies()...)
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
	exprs []expr.Any
}

func nftFeatures() []nftFeature {
	pre := nftables.Chain{Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle}
	nat := nftables.Chain{Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}
	return []nftFeature{
		{"nftables", pre, fromSlot()},
		{"nftables connection tracking", pre, conn(ctKnown)},
		{"nftables route lookup (fib)", pre, sourceNotRoutedBack()},
		{"nftables address translation (masquerade)", nat, append(fromSlot(), &expr.Masq{})},
	}
}

// check adds a table with the feature and deletes it in the same transaction,
// so that it never takes effect.
func (f nftFeature) check() Check {
	c := Check{Name: f.name}
	conn, err := nftables.New()
	if err == nil {
		t := conn.AddTable(&nftables.Table{Name: fmt.Sprintf("%s_probe_%d", tableName, os.Getpid()), Family: nftables.TableFamilyINet})
		chain := f.chain
		chain.Name, chain.Table = "probe", t
		conn.AddChain(&chain)
		conn.AddRule(&nftables.Rule{Table: t, Chain: &chain, Exprs: f.exprs})
		conn.DelTable(t)
		err = conn.Flush()
	}
	if err != nil {
		c.Detail = "the kernel refuses it: " + err.Error()
		return c
	}
	c.OK, c.Detail = true, "available"
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

func isDenied(a netip.Addr) bool {
	for _, text := range denied {
		if netip.MustParsePrefix(text).Contains(a) {
			return true
		}
	}
	return false
}

// checkForwardPolicies looks for chains of others that drop what nobody
// accepted. A packet of a sandbox must pass them too, and we do not edit them.
func checkForwardPolicies() []Check {
	c := Check{Name: "other firewalls", OK: true, Detail: "none drops forwarded packets by default"}
	conn, err := nftables.New()
	if err != nil {
		return []Check{{Name: c.Name, Warning: true, OK: true, Detail: err.Error()}}
	}
	chains, err := conn.ListChains()
	if err != nil {
		return []Check{{Name: c.Name, Warning: true, OK: true, Detail: err.Error()}}
	}
	var found []string
	for _, ch := range chains {
		if ch.Table == nil || ch.Table.Name == tableName || ch.Hooknum == nil || ch.Policy == nil {
			continue
		}
		family := ch.Table.Family
		if (family == nftables.TableFamilyINet || family == nftables.TableFamilyIPv4) &&
			*ch.Hooknum == *nftables.ChainHookForward && *ch.Policy == nftables.ChainPolicyDrop {
			found = append(found, fmt.Sprintf("%s/%s", ch.Table.Name, ch.Name))
		}
	}
	if len(found) > 0 {
		c.Warning = true
		c.Detail = "forwarded packets are dropped by default in " + strings.Join(found, ", ") +
			": allow interfaces ps-* there (with Docker, in its chain DOCKER-USER), else sandboxes have no internet"
	}
	if text, err := os.ReadFile("/proc/net/ip_tables_names"); err == nil && strings.Contains(string(text), "filter") && len(found) == 0 {
		c.Warning = true
		c.Detail = "rules of legacy iptables exist and are not examined; they must let interfaces ps-* forward"
	}
	return []Check{c}
}
