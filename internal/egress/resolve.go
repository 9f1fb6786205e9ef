package egress

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/netrule"
)

// linkTTL is how long a program may remember the address of a linked sandbox,
// which has another one after it slept.
const linkTTL = 5

// reply is an answer, and why it is not the real one.
type reply struct {
	msg     *dns.Msg
	refused string
}

// forwarded are the kinds of records besides addresses that a query may be about.
// The rest is of use to servers only, or to tunnels.
var forwarded = []uint16{
	dns.TypeNS, dns.TypeCNAME, dns.TypeSOA, dns.TypePTR, dns.TypeMX, dns.TypeTXT, dns.TypeSRV, dns.TypeNAPTR,
	dns.TypeDS, dns.TypeDNSKEY, dns.TypeTLSA, dns.TypeSSHFP, dns.TypeCAA, dns.TypeURI, dns.TypeLOC,
}

// resolve answers one query by the rules of the sandbox.
func (s *Server) resolve(ctx context.Context, peer Peer, g *guest, q *dns.Msg) reply {
	a := reply{msg: new(dns.Msg)}
	switch {
	case q.Opcode != dns.OpcodeQuery:
		a.msg.SetRcode(q, dns.RcodeNotImplemented)
		return a
	case len(q.Question) != 1:
		a.msg.SetRcode(q, dns.RcodeFormatError)
		a.msg.Question = nil
		return a
	}
	a.msg.SetReply(q)
	a.msg.RecursionAvailable = true
	qtype := q.Question[0].Qtype
	address := qtype == dns.TypeA || qtype == dns.TypeAAAA || qtype == dns.TypeHTTPS || qtype == dns.TypeSVCB
	if q.Question[0].Qclass != dns.ClassINET || !address && !slices.Contains(forwarded, qtype) {
		a.msg.Rcode, a.refused = dns.RcodeRefused, "this kind of record is not given to sandboxes"
		return a
	}
	name, ok := netrule.Name(q.Question[0].Name)
	if label, internal := strings.CutSuffix(name, ".internal"); ok && (internal || name == "internal") {
		s.link(&a, peer, label, qtype)
		return a
	}
	switch {
	case !ok:
		a.refused = "it is not the name of a host"
	case address && !peer.Rules.NameMayBeAsked(name), !address && !mayForward(peer.Rules, name):
		a.refused = "the network rules of this sandbox do not allow this name"
	case qtype == dns.TypeA:
		s.addresses(ctx, &a, peer, g, name)
	case address:
		// There is no IPv6, and SVCB records carry keys that hide names from us. The
		// name exists as far as the sandbox can tell.
	default:
		s.forward(ctx, &a, name, qtype)
	}
	if a.refused != "" {
		a.msg.Rcode = dns.RcodeNameError
		s.record(peer.ID, api.Connection{Time: time.Now(), Protocol: "dns", Name: shownName(q.Question[0].Name), Verdict: api.VerdictDenied, Reason: a.refused})
	}
	return a
}

// mayForward reports whether a question that is not about addresses may leave the
// host. Under rules by name it may only where the name itself is allowed: any other
// name could carry data to whoever answers for it.
func mayForward(r *netrule.Rules, name string) bool {
	return r.Default() && r.NameMayBeAsked(name) || r.NameIsAllowed(name)
}

// link answers for <name>.internal, which is never asked outside.
func (s *Server) link(a *reply, peer Peer, label string, qtype uint16) {
	var to netip.Addr
	ok := peer.Links != nil && label != "" && !strings.Contains(label, ".")
	if ok {
		to, ok = peer.Links(label)
	}
	if !ok || !to.Is4() {
		a.msg.Rcode = dns.RcodeNameError
		return
	}
	a.msg.Authoritative = true
	if qtype == dns.TypeA {
		h := dns.RR_Header{Name: a.msg.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: linkTTL}
		a.msg.Answer = []dns.RR{&dns.A{Hdr: h, A: to.AsSlice()}}
	}
}

// addresses answers a query for a name's addresses and pins what it answers.
func (s *Server) addresses(ctx context.Context, a *reply, peer Peer, g *guest, name string) {
	m, err := s.exchange(ctx, name, dns.TypeA)
	if err != nil {
		a.msg.Rcode = dns.RcodeServerFailure
		return
	}
	records, found, ttl := s.keep(peer.ID, name, m)
	a.msg.Rcode = outcome(m)
	a.msg.Ns = authority(m)
	for _, rr := range records {
		rr.Header().Ttl = min(rr.Header().Ttl, uint32(maxTTL/time.Second))
	}
	a.msg.Answer = records
	g.pins.add(name, found, ttl)
}

// lookup gives the addresses of a name now, for the proxy, and pins them.
func (s *Server) lookup(ctx context.Context, g *guest, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m, err := s.exchange(ctx, name, dns.TypeA)
	if err != nil {
		return nil, err
	}
	_, found, ttl := s.keep(g.id, name, m)
	g.pins.add(name, found, ttl)
	return found, nil
}

// keep gives the records of an answer that a sandbox may see, their addresses and
// how long they hold. A name that resolves to what no sandbox may reach is an
// attempt to reach it: the address is taken out, and the log says so.
func (s *Server) keep(id, name string, m *dns.Msg) (records []dns.RR, found []netip.Addr, ttl time.Duration) {
	all, ttl := chain(m, name, dns.TypeA)
	for _, rr := range all {
		r, ok := rr.(*dns.A)
		if !ok {
			records = append(records, rr)
			continue
		}
		to, ok := netip.AddrFromSlice(r.A)
		switch to = to.Unmap(); {
		case !ok || len(found) == maxAddresses:
		case !s.reach(to):
			s.record(id, api.Connection{
				Time: time.Now(), Protocol: "dns", Name: name, Address: to.String(), Verdict: api.VerdictDenied,
				Reason: "the name resolves to an address that no sandbox may reach",
			})
		default:
			records, found = append(records, rr), append(found, to)
		}
	}
	return records, found, ttl
}

// forward passes on a question that is not about addresses, and of the answer what
// is about it.
func (s *Server) forward(ctx context.Context, a *reply, name string, qtype uint16) {
	m, err := s.exchange(ctx, name, qtype)
	if err != nil {
		a.msg.Rcode = dns.RcodeServerFailure
		return
	}
	a.msg.Rcode = outcome(m)
	a.msg.Ns = authority(m)
	a.msg.Answer, _ = chain(m, name, qtype)
}

// outcome is what an answer says of a name. What went wrong between resolvers is no
// business of a sandbox.
func outcome(m *dns.Msg) int {
	if m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError {
		return m.Rcode
	}
	return dns.RcodeServerFailure
}

// authority keeps what says how long a name does not exist.
func authority(m *dns.Msg) []dns.RR {
	for _, rr := range m.Ns {
		if rr.Header().Rrtype == dns.TypeSOA {
			return []dns.RR{rr}
		}
	}
	return nil
}

// shownName is a name as the log has it: bounded, printable, without its last dot.
func shownName(name string) string {
	if canonical, ok := netrule.Name(name); ok {
		return canonical
	}
	const longest = 253
	if len(name) > longest {
		name = name[:longest]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, name)
}
