// Package edge is the network of a host's sandboxes as its agent sees it: slots
// of hostnet, in which the rules of netrule hold, enforced by hostnet where
// addresses decide and by egress where names do, and noted by netflow.
//
// All that it keeps is made anew from the sandboxes' records: a slot that was
// adopted is admitted again, and what holds in it before is what held when the
// earlier process died.
package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/hostnet"
	"github.com/pandastack/pandastack/internal/netflow"
	"github.com/pandastack/pandastack/internal/netrule"
)

// Config is what an Edge is made of.
type Config struct {
	Slots hostnet.Config
	Logs  string // directory of connection logs
	Log   *slog.Logger
}

// Edge has the slots of hostnet.Manager, whose order of calls is its own too, and
// admits sandboxes to them.
type Edge struct {
	*hostnet.Manager
	log    *slog.Logger
	flows  *netflow.Log
	egress *egress.Server

	dns    net.PacketConn // of the resolver, from Setup
	dnsTCP net.Listener
	proxy  net.Listener

	mu     sync.RWMutex
	peers  map[netip.Addr]peer
	former map[netip.Addr]string            // who was last at an address that is nobody's now
	groups map[string]map[string]netip.Addr // of each group its members' names
}

// New makes an Edge. It touches nothing until Setup.
func New(cfg Config) *Edge {
	e := &Edge{
		Manager: hostnet.New(cfg.Slots, cfg.Log),
		log:     cfg.Log,
		flows:   netflow.Open(cfg.Logs),
		peers:   map[netip.Addr]peer{},
		former:  map[netip.Addr]string{},
		groups:  map[string]map[string]netip.Addr{},
	}
	e.egress = egress.New(egress.Config{
		Peer:     e.peer,
		Upstream: hostResolvers,
		Floor:    e.Allowed,
		Original: hostnet.OriginalDestination,
		Record:   e.flows.Record,
		Log:      cfg.Log,
	})
	return e
}

func hostResolvers() []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range hostnet.HostResolvers() {
		out = append(out, netip.AddrPortFrom(a, 53))
	}
	return out
}

// OnDenied implements agent.Network.
func (e *Edge) OnDenied(f func(id string, c api.Connection)) { e.flows.Denied = f }

// Setup makes the machine ready, and opens the resolver and the proxy at the
// gate: from here on sandboxes that an earlier process left are answered.
func (e *Edge) Setup(ctx context.Context) error {
	if err := e.Manager.Setup(ctx); err != nil {
		return err
	}
	if err := e.listen(ctx); err != nil {
		return errors.Join(err, e.Manager.Close(ctx))
	}
	return nil
}

func (e *Edge) listen(ctx context.Context) (err error) {
	gate := e.Gate()
	at := func(port uint16) string { return net.JoinHostPort(gate.Address.String(), strconv.Itoa(int(port))) }
	var lc net.ListenConfig
	defer func() {
		if err != nil {
			e.hangUp()
		}
	}()
	if e.dns, err = lc.ListenPacket(ctx, "udp4", at(gate.DNSPort)); err != nil {
		return cannotListen(err, "resolver")
	}
	if e.dnsTCP, err = lc.Listen(ctx, "tcp4", at(gate.DNSPort)); err != nil {
		return cannotListen(err, "resolver")
	}
	if e.proxy, err = lc.Listen(ctx, "tcp4", at(gate.ProxyPort)); err != nil {
		return cannotListen(err, "proxy")
	}
	return nil
}

func cannotListen(err error, what string) error {
	return api.Wrap(api.CodeNetworkUnavailable, err, "the %s of sandbox networks cannot listen: %s", what, err)
}

// hangUp closes what listen opened.
func (e *Edge) hangUp() {
	if e.dns != nil {
		_ = e.dns.Close()
	}
	for _, l := range []net.Listener{e.dnsTCP, e.proxy} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// Run serves until ctx ends.
func (e *Edge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	parts := []func() error{
		func() error { return e.egress.ServeDNS(ctx, e.dns, e.dnsTCP) },
		func() error { return e.egress.ServeTCP(ctx, e.proxy) },
		func() error { return e.flows.Run(ctx) },
		func() error { return e.watchFlows(ctx) },
	}
	errs := make([]error, len(parts))
	for i, run := range parts {
		wg.Go(func() {
			errs[i] = run()
			cancel() // one without the others would let sandboxes hang
		})
	}
	err := e.Manager.Run(ctx)
	cancel()
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// flowsAgain is the rest after the kernel's account of connections broke off.
const flowsAgain = 5 * time.Second

// watchFlows notes what passed the gate by. A kernel that cannot tell what was
// contacted costs the log, not the sandboxes.
func (e *Edge) watchFlows(ctx context.Context) error {
	for {
		err := e.Flows(ctx, e.note)
		if ctx.Err() != nil {
			return nil
		}
		e.log.Warn("connections of sandboxes are not noted", "error", err)
		if api.CodeOf(err) == api.CodeKernelFeature {
			<-ctx.Done() // it will not come
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(flowsAgain):
		}
	}
}

// note writes one line of a connection that nobody of ours passed on. The end of
// one that its sandbox's sleep cut is known only after the slot was given back.
func (e *Edge) note(f hostnet.Flow) {
	id, ok := e.owner(f.Source)
	if !ok || f.Target.Addr() == e.Gate().Address {
		return // the resolver and the proxy note theirs
	}
	c := api.Connection{
		Time: f.Began, Protocol: f.Protocol, Address: f.Target.Addr().String(), Port: int(f.Target.Port()),
		Name: e.egress.NameOf(f.Source, f.Target.Addr()), Verdict: api.VerdictAllowed, Sent: f.Sent, Received: f.Received,
		Seconds: f.Ended.Sub(f.Began).Seconds(),
	}
	if f.Denied {
		c.Verdict, c.Reason, c.Seconds = api.VerdictDenied, "not allowed by the sandbox's rules", 0
		if !e.Allowed(f.Target.Addr()) {
			c.Reason = "closed to all sandboxes"
		}
	}
	e.flows.Record(id, c)
}

// Close implements agent.Network.
func (e *Edge) Close(ctx context.Context) error {
	e.hangUp()
	return e.Manager.Close(ctx)
}

// Admit implements agent.Network.
func (e *Edge) Admit(ctx context.Context, slot hostnet.Slot, id string, network host.Network) error {
	rules, err := netrule.Parse(network.Rules)
	if err != nil {
		return err
	}
	at := slot.Address.Addr()
	before := e.put(at, peer{id: id, rules: rules, links: network.Links})
	if err := e.Apply(ctx, slot, slotRules(rules, network.Links)); err != nil {
		e.put(at, before)
		e.egress.Recheck(at) // of what was admitted meanwhile
		return err
	}
	e.egress.Recheck(at)
	return nil
}

// slotRules is what the host's rules for a slot are.
func slotRules(r *netrule.Rules, links []host.Link) hostnet.Rules {
	out := hostnet.Rules{Default: r.Default(), ByName: r.ByName(), Offline: r.Offline(), Mbps: r.Mbps(), Allow: rangesOf(r.Allow()), Deny: rangesOf(r.Deny())}
	for _, l := range links {
		out.Groups = append(out.Groups, l.Group)
	}
	slices.Sort(out.Groups)
	return out
}

func rangesOf(list []netrule.Range) []hostnet.Range {
	out := make([]hostnet.Range, len(list))
	for i, r := range list {
		out[i] = hostnet.Range(r)
	}
	return out
}

// Release implements agent.Network.
func (e *Edge) Release(ctx context.Context, slot hostnet.Slot) error {
	at := slot.Address.Addr()
	e.put(at, peer{})
	e.egress.Forget(at)
	return e.Manager.Release(ctx, slot)
}

// Log implements agent.Network.
func (e *Edge) Log(id string, since int64, limit int) (api.ConnectionLog, error) {
	return e.flows.Read(id, since, limit)
}

// Keep implements agent.Network.
func (e *Edge) Keep(ids []string) error { e.flows.Sweep(ids); return nil }

// Forget implements agent.Network.
func (e *Edge) Forget(id string) { e.flows.Forget(id) }
