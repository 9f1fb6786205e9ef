package hostnet

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// witness gathers what Flows reports.
type witness struct {
	mu    sync.Mutex
	flows []Flow
}

func (w *witness) see(f Flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flows = append(w.flows, f)
}

// await gives the first flow that fits.
func (w *witness) await(t *testing.T, what string, fits func(Flow) bool) Flow {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		w.mu.Lock()
		for _, f := range w.flows {
			if fits(f) {
				w.mu.Unlock()
				return f
			}
		}
		w.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%s was not reported; seen: %+v", what, w.flows)
		}
	}
}

func (w *witness) count(fits func(Flow) bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, f := range w.flows {
		if fits(f) {
			n++
		}
	}
	return n
}

// watching runs Flows until the test ends or stop is called.
func watching(t *testing.T, m *Manager, emit func(Flow)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Flows(ctx, emit) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestFlows(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		other := newManager(t, Config{Owner: "ownerbbb"})
		so := take(t, other)
		foreign := guest(t, so)
		gate := x.m.Gate()
		dns := listen(t, nil, netip.AddrPortFrom(gate.Address, gate.DNSPort).String())
		listenProxy(t, gate)
		var seen witness
		watching(t, x.m, seen.see)
		var theirs witness
		watching(t, other, theirs.see)
		to := func(address string, denied bool) func(Flow) bool {
			at := netip.MustParseAddrPort(address)
			return func(f Flow) bool { return f.Target == at && f.Denied == denied }
		}

		// Refusals, until one is seen: the readers may not be there yet.
		apply(t, x.m, x.s, Rules{Default: true, Deny: ranges(shopPublic + "/32")})
		for deadline := time.Now().Add(30 * time.Second); seen.count(to(shopPublic+":443", true)) == 0; time.Sleep(100 * time.Millisecond) {
			refused(t, x.g, shopPublic+":443")
			if time.Now().After(deadline) {
				t.Fatal("a refusal was not reported")
			}
		}
		f := seen.await(t, "a refusal", to(shopPublic+":443", true))
		if f.Source != x.s.Address.Addr() || f.Protocol != "tcp" || time.Since(f.Began).Abs() > time.Minute {
			t.Errorf("%+v", f)
		}
		refused(t, x.g, hostWAN+":22", "169.254.169.254:80", so.Address.Addr().String()+":80")
		for _, a := range []string{hostWAN + ":22", "169.254.169.254:80", so.Address.Addr().String() + ":80"} {
			seen.await(t, a, to(a, true))
		}
		silent(t, x.g, shopPublic+":80")
		if f := seen.await(t, "a datagram", to(shopPublic+":80", true)); f.Protocol != "udp" {
			t.Errorf("%+v", f)
		}

		// Connections that end: cut here, since their ends take the kernel minutes.
		c := talk(t, x.g, webPublic+":80")
		for range 100 {
			c.alive(t)
		}
		answers(t, x.g, dns.addr)
		apply(t, x.m, x.s, Rules{ByName: true})
		f = seen.await(t, "a connection", to(webPublic+":80", false))
		if f.Source != x.s.Address.Addr() || f.Protocol != "tcp" || f.Sent < 4000 || f.Received < 4000 || !f.Began.Before(f.Ended) {
			t.Errorf("%+v", f)
		}
		readLine(t, x.g, webPublic+":443")
		apply(t, x.m, x.s, Rules{Offline: true})
		refused(t, x.g, webPublic+":81")
		seen.await(t, "the last refusal", to(webPublic+":81", true))

		refused(t, foreign, "10.99.0.1:80")
		theirs.await(t, "the neighbour's refusal", to("10.99.0.1:80", true))
		if n := seen.count(func(f Flow) bool {
			return f.Source != x.s.Address.Addr() || f.Target.Addr() == gate.Address || f.Target == netip.MustParseAddrPort(webPublic+":443")
		}); n > 0 {
			t.Errorf("%d flows are another's or the gate's: %+v", n, seen.flows)
		}
		must(t, other.Release(t.Context(), so))
		must(t, other.Close(t.Context()))
		x.end(t)
	})
}

// A sandbox that does nothing but dial what it may not neither fills the log nor
// keeps another's refusals out of it.
func TestFlowsOfAFlood(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		b := take(t, x.m)
		gb := guest(t, b)
		var seen witness
		watching(t, x.m, seen.see)
		quiet := func(f Flow) bool { return f.Source == b.Address.Addr() }
		flood := func(n int) {
			must(t, x.g.in(func() error {
				c, err := net.ListenPacket("udp4", x.s.Address.Addr().String()+":0")
				if err != nil {
					return err
				}
				defer c.Close()
				for i := range n {
					_, _ = c.WriteTo([]byte("x"), &net.UDPAddr{IP: net.IPv4(10, 99, byte(i>>8), byte(i)), Port: 1000 + i%5000})
				}
				return nil
			}))
		}
		began := time.Now()
		for deadline := began.Add(30 * time.Second); seen.count(quiet) == 0; {
			flood(2000)
			refused(t, gb, "10.99.0.1:80")
			if time.Now().After(deadline) {
				t.Fatal("the quiet sandbox's refusal was not reported")
			}
		}
		flood(2000)
		most := refusedBurst + refusedPerSecond*(int(time.Since(began).Seconds())+2)
		if n := seen.count(func(f Flow) bool { return f.Source == x.s.Address.Addr() }); n == 0 || n > most {
			t.Errorf("%d refusals were reported in %v, at most %d should be", n, time.Since(began), most)
		}
		must(t, x.m.Release(t.Context(), b))
		x.end(t)
	})
}

// A reader that does not read costs flows, and holds up nobody.
func TestFlowsThatNobodyReads(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		release := make(chan struct{})
		entered := make(chan struct{}, 1)
		watching(t, x.m, func(Flow) {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-release
		})
		t.Cleanup(sync.OnceFunc(func() { close(release) }))
		for deadline := time.Now().Add(30 * time.Second); len(entered) == 0; time.Sleep(50 * time.Millisecond) {
			refused(t, x.g, "10.99.0.1:80")
			if time.Now().After(deadline) {
				t.Fatal("nothing was reported")
			}
		}
		// More connections than may wait end at once.
		must(t, x.g.in(func() error {
			for port := range flowsWaiting + 500 {
				c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(webPublic), Port: 10_000 + port})
				if err != nil {
					return err
				}
				_, err = c.Write([]byte("x"))
				if c.Close(); err != nil {
					return err
				}
			}
			return nil
		}))
		apply(t, x.m, x.s, Rules{Offline: true})
		apply(t, x.m, x.s, DefaultRules())
		for deadline := time.Now().Add(30 * time.Second); x.m.lost.Load() == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("flows that were lost were not counted")
			}
		}
		reaches(t, x.g, webPublic+":80")
		x.end(t)
	})
}

func TestReadTracked(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		talk(t, x.g, webPublic+":80")
		answers(t, x.g, webPublic+":81")
		// A protocol without ports, let through by the default rules.
		must(t, x.g.in(func() error {
			c, err := net.Dial("ip4:47", webPublic)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(make([]byte, 16))
			return err
		}))
		want := map[string]bool{"tcp 80": false, "udp 81": false, "47 0": false}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			list, err := connections(x.s.Address.Addr(), ctBySource)
			must(t, err)
			missing := 0
			for _, f := range list {
				if f.target.String() != webPublic || f.via.String() != webPublic || len(f.raw) == 0 {
					t.Errorf("%+v", f)
				}
				want[protocolName(f.protocol)+" "+strconv.Itoa(int(f.port))] = true
			}
			for _, ok := range want {
				if !ok {
					missing++
				}
			}
			if missing == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("not all connections are listed: %v", want)
			}
		}
		apply(t, x.m, x.s, Rules{Offline: true})
		list, err := connections(x.s.Address.Addr(), ctBySource)
		if must(t, err); len(list) != 0 {
			t.Errorf("%d connections are left: %+v", len(list), list)
		}
		x.end(t)
	})
}

// Bytes are counted by the kernel as long as a server is here.
func TestCountingIsRestored(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		m := newManager(t, Config{})
		for _, name := range countingSettings {
			if got := readSetting(countingPath(name)); got != "1" {
				t.Errorf("%s is %q while a server is here", name, got)
			}
		}
		must(t, m.Close(t.Context()))
		for _, name := range countingSettings {
			if got := readSetting(countingPath(name)); got != "0" {
				t.Errorf("%s is %q after the last server", name, got)
			}
		}
	})
}

func FuzzRefusedPacket(f *testing.F) {
	packet := make([]byte, 40)
	packet[0], packet[9] = 0x45, 6
	f.Add(packet)
	f.Add(packet[:21])
	f.Add([]byte{0x4f})
	f.Fuzz(func(t *testing.T, packet []byte) {
		flow, ok := refusedPacket(packet, time.Time{})
		if ok && (!flow.Source.Is4() || !flow.Target.Addr().Is4() || !flow.Denied || strings.TrimSpace(flow.Protocol) == "") {
			t.Errorf("%+v", flow)
		}
	})
}

func FuzzReadTracked(f *testing.F) {
	request, err := connectionsOf(netip.MustParseAddr("10.0.0.2"), ctBySource)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request)
	f.Add([]byte{2, 0, 0, 0, 8, 0, 20, 0x80, 1, 2, 3, 4})
	f.Fuzz(func(_ *testing.T, message []byte) { _, _ = readTracked(message) })
}

// Rules have no hole for what is in no list of protocols.
func TestOtherProtocols(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		x := newSite(t, Config{})
		seen := func() uint64 {
			l, err := netlink.LinkByName("wan0")
			must(t, err)
			return l.Attrs().Statistics.TxPackets
		}
		send := func() {
			must(t, x.g.in(func() error {
				c, err := net.Dial("ip4:132", webPublic) // SCTP, with a header like one of ports
				if err != nil {
					return err
				}
				defer c.Close()
				for range 100 {
					_, _ = c.Write([]byte{0, 80, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0})
				}
				return nil
			}))
		}
		for _, r := range []Rules{{}, {Offline: true}, {ByName: true, Default: true}, {Allow: ranges("0.0.0.0/0 1-65535")}, {Default: true, Deny: ranges(webPublic + "/32")}} {
			apply(t, x.m, x.s, r)
			before := seen()
			send()
			if n := seen() - before; n >= 100 {
				t.Errorf("under %+v %d packets left", r, n)
			}
		}
		x.end(t)
	})
}
