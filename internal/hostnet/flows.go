package hostnet

import (
	"context"
	"net/netip"
	"strconv"
	"time"
)

// Flow is what a slot of this server did: a connection that has ended, or an
// attempt at one that was refused. What went through the gate is not in it: the
// resolver and the proxy there know more.
type Flow struct {
	Source   netip.Addr     // of the slot
	Protocol string         // tcp, udp, icmp, or the protocol's number
	Target   netip.AddrPort // port 0 where the protocol has none
	Denied   bool
	// Began and Ended are equal for an attempt, and for a connection on a host
	// that does not keep the time.
	Began, Ended time.Time
	// Bytes of packets with their headers; 0 on a host that does not count them.
	Sent, Received int64
}

// flowsWaiting is how many flows wait for a slow emit before new ones are lost.
const flowsWaiting = 4096

// lossesEvery is how often lost flows are logged.
const lossesEvery = 30 * time.Second

// Flows reports what the slots of this server do, until ctx ends; then it
// returns nil. emit is called by one goroutine. It never holds up a sandbox:
// when emit is slow, or there is too much, flows are lost and counted in the
// log; of refused attempts each slot has some twenty a second. It fails with
// host.kernel_feature_missing on a host that cannot tell. One call at a time.
func (m *Manager) Flows(ctx context.Context, emit func(Flow)) error {
	m.mu.Lock()
	cfg, open := m.cfg, m.open
	m.mu.Unlock()
	if !open {
		return errNotSetUp()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan Flow, flowsWaiting)
	failed := make(chan error, 1)
	lose := func() { m.lost.Add(1) }
	offer := func(f Flow) {
		if !m.hasSlot(cfg, f.Source) {
			return
		}
		select {
		case queue <- f:
		default:
			lose()
		}
	}
	go func() { failed <- m.kernel.watch(ctx, offer, lose) }()
	report := time.NewTicker(lossesEvery)
	defer report.Stop()
	for {
		select {
		case f := <-queue:
			emit(f)
		case <-report.C:
			if n := m.lost.Swap(0); n > 0 {
				m.log.Warn("connections of sandboxes are missing in their logs: there were too many at once", "lost", n)
			}
		case err := <-failed:
			return err
		}
	}
}

// hasSlot reports whether an address is that of a slot of this server.
func (m *Manager) hasSlot(cfg Config, a netip.Addr) bool {
	i, ok := cfg.indexOf(a)
	if !ok {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[i]
}

func protocolName(number uint8) string {
	switch number {
	case 1:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	}
	return strconv.Itoa(int(number))
}

// refusedPacket reads the headers of an IPv4 packet, which a sandbox has
// written: nothing in it is trusted but what is looked at.
func refusedPacket(packet []byte, at time.Time) (Flow, bool) {
	const least = 20
	if len(packet) < least || packet[0]>>4 != 4 {
		return Flow{}, false
	}
	header := int(packet[0]&0xf) * 4
	if header < least || len(packet) < header {
		return Flow{}, false
	}
	f := Flow{
		Source:   netip.AddrFrom4([4]byte(packet[12:16])),
		Protocol: protocolName(packet[9]),
		Denied:   true,
		Began:    at,
		Ended:    at,
	}
	port := uint16(0)
	firstFragment := packet[6]&0x1f == 0 && packet[7] == 0
	if (f.Protocol == "tcp" || f.Protocol == "udp") && firstFragment && len(packet) >= header+4 {
		port = uint16(packet[header+2])<<8 | uint16(packet[header+3])
	}
	f.Target = netip.AddrPortFrom(netip.AddrFrom4([4]byte(packet[16:20])), port)
	return f, true
}
