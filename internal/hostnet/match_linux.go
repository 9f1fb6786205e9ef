package hostnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The words that rules are written in. Each is one condition or verdict.

const ctKnown = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED

func fromSlot() []expr.Any  { return link(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(linkPrefix)) }
func toSlot() []expr.Any    { return link(expr.MetaKeyOIFNAME, expr.CmpOpEq, []byte(linkPrefix)) }
func notToSlot() []expr.Any { return link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, []byte(linkPrefix)) }

func fromLink(name string) []expr.Any {
	whole := make([]byte, unix.IFNAMSIZ)
	copy(whole, name)
	return link(expr.MetaKeyIIFNAME, expr.CmpOpEq, whole)
}

// link compares the first bytes of an interface's name.
func link(key expr.MetaKey, op expr.CmpOp, name []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: name},
	}
}

func notIPv4() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
	}
}

// sourceNotRoutedBack matches a source address that the host would not reach by
// the interface the packet came from: a forged one. The sysctl rp_filter does
// the same but is reset by other programs when an interface appears.
func sourceNotRoutedBack() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: word(0)},
	}
}

// destinationNotUnicast matches the host's own addresses, broadcasts and
// multicasts.
func destinationNotUnicast() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: word(unix.RTN_UNICAST)},
	}
}

func conn(states uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(states), Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: word(0)},
	}
}

// destinationIn is for chains that only IPv4 reaches.
func destinationIn(s *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID},
	}
}

func port(protocol byte, number uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, number)},
	}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// drop counts what it drops, which is the first question of whoever looks.
func drop() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

func jump(c *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: c.Name}}
}

func word(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// ruleset is a table being built. With counts it only counts rules by chain.
type ruleset struct {
	conn   *nftables.Conn
	table  *nftables.Table
	counts map[string]int
	err    error
}

func (r *ruleset) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return r.add(&nftables.Chain{Name: name, Table: r.table, Type: kind, Hooknum: hook, Priority: priority})
}

func (r *ruleset) chain(name string) *nftables.Chain {
	return r.add(&nftables.Chain{Name: name, Table: r.table})
}

func (r *ruleset) add(c *nftables.Chain) *nftables.Chain {
	if r.counts == nil {
		r.conn.AddChain(c)
	} else {
		r.counts[c.Name] = 0
	}
	return c
}

func (r *ruleset) rule(c *nftables.Chain, parts ...[]expr.Any) {
	if r.counts != nil {
		r.counts[c.Name]++
		return
	}
	r.conn.AddRule(&nftables.Rule{Table: r.table, Chain: c, Exprs: slices.Concat(parts...)})
}

func (r *ruleset) set(name string, elements []nftables.SetElement) *nftables.Set {
	s := &nftables.Set{Table: r.table, Name: name, KeyType: nftables.TypeIPAddr, Interval: true}
	if r.counts == nil && r.err == nil {
		r.err = r.conn.AddSet(s, elements)
	}
	return s
}

// ranges are prefixes as half-open intervals. The last address of all has no
// successor: an interval that reaches it stays open.
func ranges(prefixes []string) []nftables.SetElement {
	var out []nftables.SetElement
	for _, text := range prefixes {
		p := netip.MustParsePrefix(text)
		first := p.Addr().As4()
		out = append(out, nftables.SetElement{Key: first[:]})
		end := binary.BigEndian.Uint32(first[:]) + 1<<(32-p.Bits())
		if end != 0 {
			out = append(out, nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, end), IntervalEnd: true})
		}
	}
	return out
}

func addresses(list []netip.Addr) []nftables.SetElement {
	var texts []string
	for _, a := range list {
		texts = append(texts, netip.PrefixFrom(a, 32).String())
	}
	return ranges(texts)
}
