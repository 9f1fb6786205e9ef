// Package egress enforces rules by name: the resolver that sandboxes ask, and the
// transparent proxy that their TCP connections go through where a rule is a name.
// It runs in user space and knows nothing of how packets are led to it.
//
// # What holds against code in a sandbox
//
// A name counts only where it can be checked, and then the connection goes to an
// address of that name, whatever address the sandbox had written on it:
//
//   - TLS: the name in the ClientHello. It is dialled at an address that our
//     resolver gave this sandbox for it, or gives now. A hello that could hide
//     another name (encrypted_client_hello, two names, two hellos) is refused. What
//     browsers send as GREASE looks the same as ECH and is refused with it.
//   - HTTP/1: the Host of every request of a connection. Requests that two parsers
//     could read in two ways are refused. Cleartext HTTP/2 is refused.
//   - Anything else, and TLS without a name: only to an address that the resolver
//     gave this sandbox, or gives now, for a name whose entry says this port
//     (db.example.com:5432), and never on 80 and 443, where it would be an address
//     shared with others.
//
// An address entry that allows is enough by itself where no deny entry is a name;
// such connections are not looked into.
//
// What cannot be seen is what is said within TLS: a server of many customers that
// does not compare the inner Host with the name of the hello can be spoken to under
// an allowed name. A deny entry by name, where the default is to allow, keeps
// honest programs away and does not hold someone who brings another name.
//
// # The resolver
//
// It answers for names that the rules could allow (with an address entry that
// allows, any name might resolve to it) and says at once that others do not exist: programs then fail now, where a refusal would send some of them to
// the next server or into a timeout. There is no cache: how fast an answer came
// would tell a sandbox what others ask for. Addresses that no sandbox may reach are
// taken out of answers. Sandboxes have no IPv6, so there are no AAAA records.
//
// # Limits
//
// What a sandbox does decides how many connections and queries there are, and how
// much is read before anything is decided. All of it has a bound for one sandbox,
// and one for all together that is shared by need: while at most half is taken, a
// sandbox has its own bound only; beyond that it gets no more once it holds a
// sixteenth of what is left. So sandboxes that take all they can get leave the same
// to sixteen others, and one that holds nothing gets something while there is
// anything. What is held already is not taken back.
//
// Read ahead are at most maxHelloBytes of a connection, for as long as it is
// undecided, and at most maxHead of a later request, for helloTimeout from its first
// byte on. Every byte is looked at once, however few come at a time.
//
// # Changes
//
// Peer is asked anew for every decision. After a change of rules Recheck cuts what
// they no longer allow. Pins, which say what a name resolved to, are lost with the
// process and by Recheck; the next query of the sandbox makes them again, and so
// does the next connection under a name.
package egress

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/netrule"
)

// Limits of one sandbox.
const (
	maxFlows     = 1024 // connections through the proxy
	maxUndecided = 256  // of these, connections that nothing is decided about
	maxQueries   = 32   // queries in flight
	maxConns     = 32   // connections to the resolver
	maxPins      = 4096 // pairs of name and address
	maxLookups   = 16   // names that the proxy looks up at once
	maxAddresses = 32   // of one answer
)

// Limits of all sandboxes together. A connection through the proxy has up to six
// descriptors: its two ends, and a pipe for each direction.
const (
	maxAllFlows     = 16384
	maxAllUndecided = 4096
	maxAllQueries   = 4096
	maxAllConns     = 4096
)

// How long, and how often.
const (
	serverFirst  = 300 * time.Millisecond // of silence until the server may be one that speaks first
	helloTimeout = 5 * time.Second        // for the first bytes, complete enough to decide, and for the head of a later request
	dialTimeout  = 10 * time.Second
	maxDials     = 3 // addresses of a name that are tried
	maxNames     = 8 // names that are looked up for a connection without one
)

// Peer is the sandbox behind a source address.
type Peer struct {
	ID    string
	Rules *netrule.Rules
	// Links gives the address of the sandbox known as <name>.internal, where this
	// one is linked with it. It may be nil.
	Links func(name string) (netip.Addr, bool)
}

// Config is what a Server works with. All functions may be called from many
// goroutines at once.
type Config struct {
	// Peer names the sandbox behind a source address, with its rules as they are
	// now. Unknown sources are refused.
	Peer func(netip.Addr) (Peer, bool)
	// Upstream lists the host's resolvers, the preferred one first.
	Upstream func() []netip.AddrPort
	// Floor reports whether any sandbox may reach an address. The proxy dials
	// from the host, which can reach everything: what is closed to all sandboxes
	// is closed here by this function alone.
	Floor func(netip.Addr) bool
	// Original is the address that a redirected connection was made to.
	Original func(*net.TCPConn) (netip.AddrPort, error)
	// Dial connects to an address; nil is a net.Dialer.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Record takes a line of a sandbox's connection log. It must not block.
	Record func(id string, c api.Connection)
	// Log takes what the operator should know; nil is nowhere.
	Log *slog.Logger
}

// Server is the resolver and the proxy of all sandboxes of a host.
type Server struct {
	cfg                              Config
	flows, undecided, queries, conns places

	mu     sync.Mutex
	guests map[netip.Addr]*guest
}

// New makes a server. It has no state until something is served.
func New(cfg Config) *Server {
	if cfg.Dial == nil {
		var d net.Dialer
		cfg.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, "tcp4", to.String())
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg:       cfg,
		flows:     places{each: maxFlows, all: maxAllFlows},
		undecided: places{each: maxUndecided, all: maxAllUndecided},
		queries:   places{each: maxQueries, all: maxAllQueries},
		conns:     places{each: maxConns, all: maxAllConns},
		guests:    map[netip.Addr]*guest{},
	}
}

// Recheck applies changed rules to the sandbox at source: it cuts connections that
// are no longer allowed and forgets what names resolved to. Peer must give the new
// rules before it is called.
func (s *Server) Recheck(source netip.Addr) {
	source = source.Unmap()
	s.mu.Lock()
	g := s.guests[source]
	s.mu.Unlock()
	if g == nil {
		return
	}
	peer, ok := s.peer(source)
	if !ok || peer.ID != g.id {
		s.Forget(source)
		return
	}
	g.pins.forget()
	for _, f := range g.open() {
		if !f.stillAllowed(peer.Rules) {
			f.cut(errChanged)
		}
	}
}

// Forget cuts every connection of the sandbox at source and forgets it. The next
// one with this address begins with nothing.
func (s *Server) Forget(source netip.Addr) {
	s.mu.Lock()
	g := s.guests[source.Unmap()]
	delete(s.guests, source.Unmap())
	s.mu.Unlock()
	if g != nil {
		g.end()
	}
}

// NameOf gives a name that the sandbox at source has resolved to an address, or
// "": for lines of the log about connections that nobody looked into.
func (s *Server) NameOf(source, to netip.Addr) string {
	s.mu.Lock()
	g := s.guests[source.Unmap()]
	s.mu.Unlock()
	if g == nil {
		return ""
	}
	return g.pins.name(to.Unmap())
}

// peer asks who is behind an address.
func (s *Server) peer(source netip.Addr) (Peer, bool) {
	p, ok := s.cfg.Peer(source)
	return p, ok && p.Rules != nil
}

// guest gives the state of a sandbox. A source that has changed hands starts anew.
func (s *Server) guest(source netip.Addr, id string) *guest {
	s.mu.Lock()
	old := s.guests[source]
	if old != nil && old.id == id {
		s.mu.Unlock()
		return old
	}
	s.mu.Unlock()
	g := &guest{id: id, flows: map[*flow]struct{}{}, lookups: make(chan struct{}, maxLookups)}
	if p, ok := s.peer(source); !ok || p.ID != id {
		g.ended = true // it changed hands since the caller asked
		return g
	}
	s.mu.Lock()
	if now := s.guests[source]; now != nil && now.id == id {
		s.mu.Unlock()
		return now
	} else if now != nil {
		old = now
	}
	s.guests[source] = g
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
	return g
}

// reach reports whether sandboxes may reach an address at all.
func (s *Server) reach(a netip.Addr) bool {
	a = a.Unmap()
	return a.Is4() && !a.IsUnspecified() && s.cfg.Floor != nil && s.cfg.Floor(a)
}

func (s *Server) record(id string, c api.Connection) {
	if s.cfg.Record != nil {
		s.cfg.Record(id, c)
	}
}

// guest is what is known of one sandbox.
type guest struct {
	id      string
	pins    pins
	lookups chan struct{} // a place for each name that is being looked up

	mu        sync.Mutex
	ended     bool
	flows     map[*flow]struct{}
	undecided int // of flows
	queries   int // in flight
	conns     int // to the resolver
}

// take counts one more of something, n, that all sandboxes share.
func (g *guest) take(n *int, of *places) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || !of.take(*n) {
		return false
	}
	*n++
	return true
}

func (g *guest) release(n *int, of *places) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*n--
	of.release()
}

// add admits a connection, unless there are too many.
func (g *guest) add(f *flow, of *places) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || !of.take(len(g.flows)) {
		return false
	}
	g.flows[f] = struct{}{}
	return true
}

func (g *guest) remove(f *flow, of *places) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.flows, f)
	of.release()
}

// open lists the connections that there are now.
func (g *guest) open() []*flow {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*flow, 0, len(g.flows))
	for f := range g.flows {
		out = append(out, f)
	}
	return out
}

// end admits nothing more and cuts what is open.
func (g *guest) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	for _, f := range g.open() {
		f.cut(errGone)
	}
	g.pins.forget()
}

// random16 is a number that somebody who does not see it cannot guess.
func random16() uint16 {
	var b [2]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint16(b[:])
}
