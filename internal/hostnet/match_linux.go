package hostnet

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The words that rules are written in. Each is one condition or verdict.

const ctKnown = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED

func fromSlot() []expr.Any  { return link(expr.MetaKeyIIFNAME, expr.CmpOpEq, []byte(linkPrefix)) }
func toSlot() []expr.Any    { return link(expr.MetaKeyOIFNAME, expr.CmpOpEq, []byte(linkPrefix)) }
func notToSlot() []expr.Any { return link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, []byte(linkPrefix)) }

// link compares the first bytes of an interface's name.
func link(key expr.MetaKey, op expr.CmpOp, name []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: name},
	}
}

// linkName16 is an interface's name as sets hold it.
func linkName16(name string) []byte {
	whole := make([]byte, unix.IFNAMSIZ)
	copy(whole, name)
	return whole
}

// lookup matches, or with a map decides by, what a packet's meta data are in a set.
func lookup(key expr.MetaKey, s *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID, IsDestRegSet: s.IsMap},
	}
}

func notFromLink(name string) []expr.Any {
	return link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, linkName16(name))
}

func notIPv4() []expr.Any  { return family(expr.CmpOpNeq) }
func onlyIPv4() []expr.Any { return family(expr.CmpOpEq) }

func family(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
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

// destinationKind compares what the host takes a destination for: itself, a
// broadcast, somebody else.
func destinationKind(op expr.CmpOp, kind uint32) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: op, Register: 1, Data: word(kind)},
	}
}

func conn(states uint32) []expr.Any { return ctBits(expr.CtKeySTATE, states) }

// redirected matches a connection whose destination was translated.
func redirected() []expr.Any { return ctBits(expr.CtKeySTATUS, ctDestinationTranslated) }

func ctBits(key expr.CtKey, bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: key},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(bits), Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: word(0)},
	}
}

// The words about addresses and ports are for chains that only IPv4 reaches.

func loadDestination(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
}

func destinationIn(s *nftables.Set) []expr.Any {
	return []expr.Any{loadDestination(1), &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}}
}

func destinationWithin(p netip.Prefix) []expr.Any {
	if p.Bits() == 0 {
		return nil
	}
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-p.Bits()))
	addr := p.Masked().Addr().As4()
	return []expr.Any{
		loadDestination(1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addr[:]},
	}
}

// destinationSharesGroup matches a destination that is a member of a group.
func destinationSharesGroup(id groupID, members *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: id[:]},
		loadDestination(2), // beside the first, so that both are one key
		&expr.Lookup{SourceRegister: 1, SetName: members.Name, SetID: members.ID},
	}
}

func protocol(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}

func port(number byte, n uint16) []expr.Any { return append(protocol(number), portWithin(n, n)...) }

// portWithin follows a condition on the protocol.
func portWithin(first, last uint16) []expr.Any {
	out := []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}}
	if first == last {
		return append(out, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: bigEndian16(first)})
	}
	return append(out,
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: bigEndian16(first)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: bigEndian16(last)})
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func back() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }

// drop counts what it drops, which is the first question of whoever looks.
func drop() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

// reject tells the sender, so that a program inside fails at once.
func reject(kind uint32, code uint8) []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: kind, Code: code}}
}

func jump(c *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: c.Name}}
}

func goTo(c *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Name}}
}

// destinationBecomes sends a connection to an address and port of the host.
func destinationBecomes(a netip.Addr, n uint16) []expr.Any {
	addr := a.As4()
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: addr[:]},
		&expr.Immediate{Register: 2, Data: bigEndian16(n)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}
}

// The log of what is refused: so many per slot, and of each only its headers.
const (
	refusedPerSecond = 20
	refusedBurst     = 40
	refusedBytes     = 64
	refusedMemory    = time.Minute
)

// logRefused hands a packet's headers to user space, within a rate for each
// source address; beyond it the rule ends here.
func logRefused(meter *nftables.Set, group uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
		&expr.Dynset{SrcRegKey: 1, SetName: meter.Name, SetID: meter.ID, Operation: unix.NFT_DYNSET_OP_UPDATE,
			Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: refusedPerSecond, Unit: expr.LimitTimeSecond, Burst: refusedBurst}}},
		&expr.Log{Key: 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_SNAPLEN, Group: group, Snaplen: refusedBytes},
	}
}

func word(n uint32) []byte        { return binary.NativeEndian.AppendUint32(nil, n) }
func bigEndian16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// intervals are prefixes as half-open intervals, in order and without overlaps,
// as the kernel wants them. The last address of all has no successor: an
// interval that reaches it stays open.
func intervals(prefixes []netip.Prefix) []nftables.SetElement {
	type span struct{ first, end uint64 }
	var spans []span
	for _, p := range prefixes {
		a := p.Masked().Addr().As4()
		first := uint64(binary.BigEndian.Uint32(a[:]))
		spans = append(spans, span{first, first + 1<<(32-p.Bits())})
	}
	slices.SortFunc(spans, func(a, b span) int {
		if a.first != b.first {
			return int(int64(a.first) - int64(b.first))
		}
		return int(int64(a.end) - int64(b.end))
	})
	var merged []span
	for _, s := range spans {
		if n := len(merged); n > 0 && s.first <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	var out []nftables.SetElement
	for _, s := range merged {
		out = append(out, nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, uint32(s.first))})
		if s.end < 1<<32 {
			out = append(out, nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, uint32(s.end)), IntervalEnd: true})
		}
	}
	return out
}

func singles(list []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, 32))
	}
	return out
}
