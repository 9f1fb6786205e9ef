package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// How the host's resolvers are asked: each in turn, twice, until one answers or
// queryTimeout is over.
const (
	upstreamTry    = 1500 * time.Millisecond
	upstreamRounds = 2
	maxUpstreams   = 3
	upstreamSize   = 1232 // bytes over UDP that no path splits
	maxStrangers   = 64   // packets that are no answer to the question, until a try is given up
)

var errNoAnswer = errors.New("no resolver of the host answers")

// exchange asks the host's resolvers. An answer that says that a server failed
// counts only when all say so.
func (s *Server) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	servers := s.cfg.Upstream()
	servers = servers[:min(len(servers), maxUpstreams)]
	var failed *dns.Msg
	for range upstreamRounds {
		for _, server := range servers {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			m, err := ask(ctx, server, name, qtype)
			if err != nil {
				continue
			}
			if m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError {
				return m, nil
			}
			failed = m
		}
		if failed != nil {
			return failed, nil
		}
	}
	return nil, errNoAnswer
}

// ask puts one question to one server, over UDP from a port of its own, and again
// over TCP where the answer was too long. What did fit is better than nothing.
func ask(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	q.Id = random16()
	q.SetEdns0(upstreamSize, false)
	m, err := askOver(ctx, "udp", server, q)
	if err == nil && m.Truncated {
		if whole, err := askOver(ctx, "tcp", server, q); err == nil {
			return whole, nil
		}
	}
	return m, err
}

func askOver(ctx context.Context, network string, server netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTry)
	defer cancel()
	wire, err := q.Pack()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		if err := writeFrame(conn, wire); err != nil {
			return nil, err
		}
		wire, err := readFrame(conn, dns.MaxMsgSize)
		if err != nil {
			return nil, err
		}
		return answerTo(q, wire)
	}
	if _, err := conn.Write(wire); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for range maxStrangers {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if m, err := answerTo(q, buf[:n]); err == nil {
			return m, nil
		}
	}
	return nil, errNoAnswer
}

// answerTo reads an answer and reports whether it is one to this question.
func answerTo(q *dns.Msg, wire []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		return nil, err
	}
	if !m.Response || m.Id != q.Id || len(m.Question) != 1 || m.Question[0].Qtype != q.Question[0].Qtype ||
		m.Question[0].Qclass != dns.ClassINET || !strings.EqualFold(m.Question[0].Name, q.Question[0].Name) {
		return nil, errors.New("an answer to another question")
	}
	return m, nil
}

// chain gives the records of an answer that are about the question: the aliases
// from the name on, and what stands at their end. A server may add others; they are
// not what was asked. The lowest time to live among them is that of the whole.
func chain(m *dns.Msg, name string, qtype uint16) ([]dns.RR, time.Duration) {
	const maxAliases = 16
	owner, ttl := dns.Fqdn(name), uint32(maxTTL/time.Second)
	var out []dns.RR
	for range maxAliases {
		var alias *dns.CNAME
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, owner) {
				continue
			}
			if h.Rrtype == qtype {
				out = append(out, rr)
				ttl = min(ttl, h.Ttl)
			} else if c, ok := rr.(*dns.CNAME); ok && alias == nil {
				alias = c
				out = append(out, rr)
				ttl = min(ttl, h.Ttl)
			}
		}
		if alias == nil || qtype == dns.TypeCNAME {
			break
		}
		owner = alias.Target
		if strings.EqualFold(owner, dns.Fqdn(name)) {
			break
		}
	}
	return out, time.Duration(ttl) * time.Second
}

// readFrame reads a message of DNS over TCP.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > limit {
		return nil, errors.New("a message that is too long")
	}
	wire := make([]byte, n)
	_, err := io.ReadFull(r, wire)
	return wire, err
}

func writeFrame(w io.Writer, wire []byte) error {
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(wire)), uint16(len(wire)))
	_, err := w.Write(append(framed, wire...))
	return err
}
