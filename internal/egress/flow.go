package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/internal/netrule"
)

// ServeTCP passes on redirected connections until ctx ends. It closes the listener,
// and returns when every connection has ended.
func (s *Server) ServeTCP(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	return accept(ctx, l, s.cfg.Log, func(c *net.TCPConn) { all.Go(func() { s.serve(ctx, c) }) })
}

// serve decides about one connection and passes it on.
func (s *Server) serve(ctx context.Context, c *net.TCPConn) {
	source := remote(c)
	peer, known := s.peer(source)
	to, err := s.cfg.Original(c)
	if !known || err != nil || !to.Addr().Unmap().Is4() {
		reset(c)
		return
	}
	f := &flow{
		s: s, g: s.guest(source, peer.ID), source: source, client: c, in: inlet{conn: c}, began: time.Now(),
		to: netip.AddrPortFrom(to.Addr().Unmap(), to.Port()),
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	defer f.cancel(nil)
	if !f.g.add(f, &s.flows) {
		f.refused(errMany)
		reset(c)
		return
	}
	defer f.g.remove(f, &s.flows)
	defer f.decided()
	// A guest that sleeps does not answer probes. What is left of one that is gone
	// is cut by Forget.
	_ = c.SetKeepAlive(false)
	defer context.AfterFunc(f.ctx, f.close)()
	f.finish(f.decide())
}

// how is what a connection is allowed by.
type how int

const (
	byAddress how = iota // an address entry, or the default
	byName               // a name that was seen, and an address of it
	byPort               // a name whose entry says the port, and an address of it
)

const (
	errMany    refusal = "the sandbox has too many connections"
	errWaiting refusal = "the sandbox has too many connections that are not made yet"
	errGone    refusal = "the sandbox is gone"
	errChanged refusal = "the rules changed"
	errFloor   refusal = "no sandbox may reach this address"
	errRules   refusal = "the network rules of this sandbox do not allow it"
	errNowhere refusal = "the name resolves to no address that may be reached"
	errSilent  refusal = "nothing was sent that says whom it is for"
)

// unreached is why an allowed connection could not be made.
type unreached string

func (u unreached) Error() string { return string(u) }

// flow is one connection of a sandbox.
type flow struct {
	s      *Server
	g      *guest
	source netip.Addr
	to     netip.AddrPort // where the sandbox sent it
	began  time.Time
	client *net.TCPConn
	in     inlet // what the client sends
	ctx    context.Context
	cancel context.CancelCauseFunc

	waits          bool     // whether it is counted as undecided
	speaks         protocol // for how to say no
	sent, received atomic.Int64

	mu      sync.Mutex
	closed  bool
	up      net.Conn // nil until there is a connection
	dialled netip.AddrPort
	name    string // that it is under now
	logged  string // that the log has: the first
	how     how
	looked  bool // whether somebody looked for a name
}

// rules gives the rules of the sandbox as they are now.
func (f *flow) rules() (*netrule.Rules, error) {
	peer, ok := f.s.peer(f.source)
	if !ok || peer.ID != f.g.id {
		return nil, errGone
	}
	return peer.Rules, nil
}

// decide finds out what the connection is, and passes it on if it is allowed. Its
// error is a refusal, or why nothing was reached.
func (f *flow) decide() error {
	rules, err := f.rules()
	if err != nil {
		return err
	}
	if rules.Decide("", f.to) && !rules.DeniesByName() {
		return f.pass(f.g.pins.name(f.to.Addr()), byAddress, []netip.AddrPort{f.to})
	}
	f.looked = true
	if err := f.wait(); err != nil {
		return err
	}
	f.in.until(f.began.Add(serverFirst))
	if err := f.in.fill(maxHelloBytes); ranOut(err) {
		if done, err := f.serverFirst(rules); done {
			return err
		}
	}
	f.in.until(time.Now().Add(helloTimeout))
	f.speaks, err = f.in.protocol()
	if err != nil {
		return errSilent
	}
	switch f.speaks {
	case speaksTLS:
		return f.tls()
	case speaksHTTP:
		return f.http()
	}
	return f.other()
}

// wait counts the connection as undecided, so that something may be read ahead of
// it; decided takes that back. Until something is reached it is undecided: it holds
// what was read ahead.
func (f *flow) wait() error {
	if !f.g.take(&f.g.undecided, &f.s.undecided) {
		return errWaiting
	}
	f.waits = true
	return nil
}

func (f *flow) decided() {
	if f.waits {
		f.waits = false
		f.g.release(&f.g.undecided, &f.s.undecided)
	}
}

// tls passes on a TLS connection by the name in its hello.
func (f *flow) tls() error {
	name, err := f.in.hello()
	if err != nil {
		return asRefusal(err, errHello)
	}
	if name == "" {
		return f.other()
	}
	f.setName(name)
	how, targets, err := f.targets(name)
	if err != nil {
		return err
	}
	return f.pass(name, how, targets)
}

// other passes on what has no name of its own.
func (f *flow) other() error {
	rules, err := f.rules()
	if err != nil {
		return err
	}
	name, how, ok := f.unnamed(rules)
	if !ok {
		return errRules
	}
	return f.pass(name, how, []netip.AddrPort{f.to})
}

// unnamed says what allows a connection in which no name is to be seen. Ports 80
// and 443 belong to protocols that have names: there the rule about a name's own
// port would open every other customer of a shared address.
func (f *flow) unnamed(rules *netrule.Rules) (string, how, bool) {
	if rules.Decide("", f.to) {
		return "", byAddress, true
	}
	if port := f.to.Port(); port == 80 || port == 443 {
		return "", 0, false
	}
	if name := f.named(rules); name != "" {
		return name, byPort, true
	}
	// The sandbox may have resolved a name before this process began, or before it
	// was a fork.
	names := rules.NamesWithPort(f.to.Port())
	for _, name := range names[:min(len(names), maxNames)] {
		if f.g.pins.fresh(name) {
			continue
		}
		if _, err := f.s.lookup(f.ctx, f.g, name); err != nil {
			break // no resolver answers: asking for the next name would only take longer
		}
		if name := f.named(rules); name != "" {
			return name, byPort, true
		}
	}
	return "", 0, false
}

// named gives a name that resolved to where the connection goes, and whose entry
// says its port.
func (f *flow) named(rules *netrule.Rules) string {
	for _, name := range f.g.pins.names(f.to.Addr()) {
		if rules.NamesPort(name, f.to.Port()) && rules.Decide(name, f.to) {
			return name
		}
	}
	return ""
}

// targets says where a connection under a name that was seen may go: to where the
// sandbox sent it, if the address is allowed by itself or is one of the name's, and
// else to the addresses of the name.
func (f *flow) targets(name string) (how, []netip.AddrPort, error) {
	rules, err := f.rules()
	if err != nil {
		return 0, nil, err
	}
	switch {
	case rules.Decide("", f.to) && rules.Decide(name, f.to):
		return byAddress, []netip.AddrPort{f.to}, nil
	case !rules.NameAllowedAt(name, f.to.Port()):
		return 0, nil, errRules
	case f.g.pins.has(name, f.to.Addr()) && rules.Decide(name, f.to):
		return byName, []netip.AddrPort{f.to}, nil
	}
	found, err := f.s.lookup(f.ctx, f.g, name)
	if err != nil {
		return 0, nil, unreached("the name could not be resolved")
	}
	var targets []netip.AddrPort
	for _, a := range found {
		to := netip.AddrPortFrom(a, f.to.Port())
		if rules.Decide(name, to) {
			targets = append(targets, to)
		}
	}
	if slices.Contains(targets, f.to) {
		return byName, []netip.AddrPort{f.to}, nil
	}
	if len(targets) == 0 {
		return 0, nil, errNowhere
	}
	return byName, targets[:min(len(targets), maxDials)], nil
}

// serverFirst connects a client that has been silent for a while where that is
// allowed without a name: its protocol may be one in which the server speaks first.
// It does not take the silence for an answer. Whoever waits and then sends a TLS
// hello is not done here, and is judged by it.
func (f *flow) serverFirst(rules *netrule.Rules) (done bool, err error) {
	name, how, ok := f.unnamed(rules)
	if !ok {
		return false, nil
	}
	if err := f.connect(name, how, []netip.AddrPort{f.to}); err != nil {
		return true, err
	}
	f.decided()
	past := time.Unix(1, 0)
	spoken := make(chan []byte, 1)
	f.in.until(time.Time{})
	go func() {
		b := make([]byte, 4<<10)
		n, _ := f.up.Read(b)
		f.in.until(past)
		spoken <- b[:n]
	}()
	_ = f.in.fill(maxHelloBytes) // ends when the client speaks, or the server has
	f.up.SetReadDeadline(past)
	greeting := <-spoken
	f.in.until(time.Time{})
	f.up.SetReadDeadline(time.Time{})
	if len(f.in.buf) > 0 && len(greeting) == 0 {
		f.disconnect()
		f.logged = "" // what it will be called is what it says now
		err := f.wait()
		return err != nil, err
	}
	if len(greeting) > 0 {
		n, err := f.client.Write(greeting)
		f.received.Add(int64(n))
		if err != nil {
			f.close()
		}
	}
	f.relay()
	return true, nil
}

// pass connects and moves bytes both ways until both have ended.
func (f *flow) pass(name string, how how, targets []netip.AddrPort) error {
	if err := f.connect(name, how, targets); err != nil {
		return err
	}
	f.decided()
	f.in.until(time.Time{})
	f.relay()
	return nil
}

// connect dials the first of the targets that answers. The floor is asked here,
// about the address that is really dialled.
func (f *flow) connect(name string, how how, targets []netip.AddrPort) error {
	var up net.Conn
	var last error = errNowhere
	for _, to := range targets {
		if !f.s.reach(to.Addr()) {
			last = errFloor
			continue
		}
		ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
		c, err := f.s.cfg.Dial(ctx, to)
		cancel()
		if err == nil {
			up = c
			f.set(up, to, name, how)
			break
		}
		last = dialFailure(err)
	}
	if up == nil {
		return last
	}
	// The rules may have changed since they were asked, before this connection was
	// one that Recheck could see.
	rules, err := f.rules()
	if err == nil && !f.stillAllowed(rules) {
		err = errChanged
	}
	if err != nil {
		f.disconnect()
	}
	return err
}

// set makes a connection the flow's own, so that it is closed with it.
func (f *flow) set(up net.Conn, to netip.AddrPort, name string, how how) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up, f.dialled, f.name, f.how = up, to, name, how
	if f.logged == "" {
		f.logged = name
	}
	if f.closed {
		up.Close()
	}
}

// disconnect goes back to before connect.
func (f *flow) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up.Close()
	f.up, f.dialled, f.name = nil, netip.AddrPort{}, ""
}

// setName says under which name the connection goes on.
func (f *flow) setName(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.name = name
	if f.logged == "" {
		f.logged = name
	}
}

// stillAllowed reports whether rules allow the connection as it is.
func (f *flow) stillAllowed(rules *netrule.Rules) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dialled.IsValid() {
		return true // not decided yet: connect will ask
	}
	port := f.dialled.Port()
	switch {
	case !rules.Decide(f.name, f.dialled):
		return false
	case rules.Decide("", f.dialled) && (f.looked || !rules.DeniesByName()):
		return true
	}
	return f.how == byName && rules.NameAllowedAt(f.name, port) || f.how == byPort && rules.NamesPort(f.name, port)
}

// relay moves bytes both ways. An end on one side becomes an end on the other; an
// error on one side becomes one on both.
func (f *flow) relay() {
	var down sync.WaitGroup
	down.Go(f.relayDown)
	n, err := f.in.copyAll(f.up)
	f.sent.Add(n)
	f.ended(f.up, err)
	down.Wait()
}

func (f *flow) relayDown() {
	n, err := io.Copy(f.client, f.up)
	f.received.Add(n)
	f.ended(f.client, err)
}

// ended says to one side that the other has nothing more to say.
func (f *flow) ended(to net.Conn, err error) {
	if err == nil {
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			err = half.CloseWrite()
		}
	}
	if err != nil {
		f.close()
	}
}

// cut ends the connection for a reason that the log has.
func (f *flow) cut(why refusal) { f.cancel(why) }

// close ends both sides at once.
func (f *flow) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	reset(f.client)
	if tcp, ok := f.up.(*net.TCPConn); ok {
		reset(tcp)
	} else if f.up != nil {
		f.up.Close()
	}
}

// reset closes a connection in a way that the other end takes for an error and
// not for the end of what was to be said.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}

func asRefusal(err error, otherwise refusal) error {
	var r refusal
	if errors.As(err, &r) {
		return r
	}
	return otherwise
}
