package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// What the resolver takes over the wire.
const (
	maxQuery     = 4096             // bytes of a query
	resolverIdle = 10 * time.Second // of a connection to the resolver
	queryTimeout = 5 * time.Second
)

// ServeDNS answers queries over UDP and TCP until ctx ends; either may be nil.
// The packets must come to an address of the socket's own: the answer goes out
// from there. It closes both, and returns when every query has ended.
func (s *Server) ServeDNS(ctx context.Context, packets net.PacketConn, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	failed := make(chan error, 2)
	running := 0
	if packets != nil {
		running++
		defer context.AfterFunc(ctx, func() { packets.Close() })()
		all.Go(func() { failed <- s.servePackets(ctx, packets, &all) })
	}
	if l != nil {
		running++
		all.Go(func() {
			failed <- accept(ctx, l, s.cfg.Log, func(c *net.TCPConn) { all.Go(func() { s.serveQueries(ctx, c) }) })
		})
	}
	var first error
	for range running {
		if err := <-failed; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// accept hands on connections until ctx ends. A listener that fails for another
// reason than being closed is tried again: the host may be out of files for now.
func accept(ctx context.Context, l net.Listener, log interface{ Warn(string, ...any) }, serve func(*net.TCPConn)) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			if tcp, ok := c.(*net.TCPConn); ok {
				serve(tcp)
			} else {
				c.Close()
			}
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			log.Warn("a connection of a sandbox could not be accepted", "error", err)
			pause(ctx)
		}
	}
}

// pause waits a moment for what failed to get better.
func pause(ctx context.Context) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

func (s *Server) servePackets(ctx context.Context, packets net.PacketConn, all *sync.WaitGroup) error {
	buf := make([]byte, maxQuery)
	for {
		n, from, err := packets.ReadFrom(buf)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.cfg.Log.Warn("a query of a sandbox could not be read", "error", err)
			pause(ctx)
			continue
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok {
			continue
		}
		s.packet(ctx, udp, append([]byte(nil), buf[:n]...), packets, all)
	}
}

// packet answers one query over UDP beside the loop, or drops it where its sender
// is unknown or has too many in flight: it will ask again.
func (s *Server) packet(ctx context.Context, from *net.UDPAddr, wire []byte, packets net.PacketConn, all *sync.WaitGroup) {
	source := from.AddrPort().Addr().Unmap()
	peer, ok := s.peer(source)
	if !ok {
		return
	}
	g := s.guest(source, peer.ID)
	if !g.take(&g.queries, &s.queries) {
		return
	}
	all.Go(func() {
		defer g.release(&g.queries, &s.queries)
		if answer := s.answer(ctx, peer, g, wire, true); answer != nil {
			// A packet that cannot be sent is lost like any other.
			_, _ = packets.WriteTo(answer, from)
		}
	})
}

// serveQueries answers the queries of one connection, one after the other. A query
// for which there is no place ends the connection.
func (s *Server) serveQueries(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	source := remote(c)
	peer, ok := s.peer(source)
	if !ok {
		return
	}
	g := s.guest(source, peer.ID)
	if !g.take(&g.conns, &s.conns) {
		return
	}
	defer g.release(&g.conns, &s.conns)
	for ctx.Err() == nil {
		c.SetDeadline(time.Now().Add(resolverIdle))
		wire, err := readFrame(c, maxQuery)
		if err != nil {
			return
		}
		if peer, ok = s.peer(source); !ok || peer.ID != g.id {
			return
		}
		if !g.take(&g.queries, &s.queries) {
			return
		}
		answer := s.answer(ctx, peer, g, wire, false)
		g.release(&g.queries, &s.queries)
		c.SetDeadline(time.Now().Add(resolverIdle))
		if answer == nil || writeFrame(c, answer) != nil {
			return
		}
	}
}

// answer gives the answer to a query as it goes over the wire, or nil where there
// is none to give.
func (s *Server) answer(ctx context.Context, peer Peer, g *guest, wire []byte, udp bool) []byte {
	q := new(dns.Msg)
	if err := q.Unpack(wire); err != nil {
		return malformed(wire)
	}
	if q.Response {
		return nil // answered, two servers could keep each other busy for ever
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a := s.resolve(ctx, peer, g, q)
	size := dns.MaxMsgSize
	opt := q.IsEdns0()
	if udp {
		size = dns.MinMsgSize
		if opt != nil {
			size = max(size, min(int(opt.UDPSize()), upstreamSize))
		}
	}
	if opt != nil {
		reply := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		reply.SetUDPSize(upstreamSize)
		if a.refused != "" {
			reply.Option = append(reply.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited, ExtraText: a.refused})
		}
		a.msg.Extra = append(a.msg.Extra, reply)
	}
	a.msg.Compress = true
	a.msg.Truncate(size)
	out, err := a.msg.Pack()
	if err != nil {
		return malformed(wire)
	}
	return out
}

// malformed answers what cannot be read, when it is at least a query.
func malformed(wire []byte) []byte {
	const header, response = 12, 0x80
	if len(wire) < header || wire[2]&response != 0 {
		return nil
	}
	out := make([]byte, header)
	copy(out, wire[:2])
	out[2] = response | wire[2]&0x79 // the opcode and RD as they came
	out[3] = dns.RcodeFormatError
	return out
}

// remote is the address that a connection comes from.
func remote(c *net.TCPConn) netip.Addr {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}
