package hostnet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const machineEnv = "PANDASTACK_HOSTNET_MACHINE"

// onMachine runs a test on a machine of its own: a process with a network and a
// mount table that begin empty and end with it. There the test is alone, may
// be a router or not, and can leave nothing behind.
func onMachine(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(machineEnv) == t.Name() {
		becomeMachine(t)
		test(t)
		return
	}
	t.Parallel()
	requireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), machineEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "    ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: network namespaces need root")
	}
}

func becomeMachine(t testing.TB) {
	t.Helper()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	hideRun(t)
	must(t, unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"))
	must(t, os.WriteFile("/run/resolv.conf", nil, 0o644))
	must(t, unix.Mount("/run/resolv.conf", "/etc/resolv.conf", "", unix.MS_BIND, ""))
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0o644))
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
}

// hideRun lets go of the mounts that were copied from the machine around, such
// as namespaces of its slots: they would come and go with theirs.
func hideRun(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], "/run/") {
			_ = unix.Unmount(fields[4], unix.MNT_DETACH) // may be gone with one above it
		}
	}
}

// Addresses of the world outside the machine under test.
const (
	hostWAN   = "192.0.2.2"
	worldWAN  = "192.0.2.1"
	webPublic = "198.51.100.10"
	resolver  = "10.99.0.53"
)

// insides are addresses outside the machine that no sandbox may reach, though
// the machine itself does.
var insides = []string{
	"10.99.0.1", resolver, "172.16.5.5", "172.31.255.1", "192.168.7.7", "169.254.169.254", "169.254.1.1",
	"100.64.1.1", "198.18.0.1", "192.0.0.8",
}

// world is the rest of the network: it has every address of insides and
// webPublic, and answers TCP on any port that a test listens on.
type world struct {
	t  testing.TB
	ns *netns
}

// newWorld connects the machine to a world by wan0, with a default route.
func newWorld(t testing.TB) *world {
	t.Helper()
	n, err := newNetns()
	must(t, err)
	t.Cleanup(n.close)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "wan0", 1400
	link := netlink.NewVeth(attrs)
	link.PeerName, link.PeerMTU, link.PeerNamespace = guestLink, 1400, netlink.NsFd(n.file.Fd())
	must(t, netlink.LinkAdd(link))
	must(t, n.up())
	must(t, netlink.LinkSetUp(link))
	must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: cidr(hostWAN + "/24")}))
	n.addAddr(t, guestLink, worldWAN+"/24")
	for _, a := range append([]string{webPublic}, insides...) {
		n.addAddr(t, "lo", a+"/32")
	}
	must(t, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(worldWAN)}))
	// An attacker outside who knows where the sandboxes are.
	must(t, n.route.RouteAdd(&netlink.Route{Dst: cidr(DefaultPrefix), Gw: net.ParseIP(hostWAN)}))
	return &world{t, n}
}

func (n *netns) addAddr(t testing.TB, link, address string) {
	t.Helper()
	l, err := n.route.LinkByName(link)
	must(t, err)
	must(t, n.route.AddrAdd(l, &netlink.Addr{IPNet: cidr(address)}))
}

// in runs f in the namespace.
func (n *netns) in(f func() error) error { return n.inside(f) }

func (n *netns) dial(network, address string) (net.Conn, error) {
	var c net.Conn
	err := n.in(func() (err error) {
		c, err = (&net.Dialer{Timeout: 2 * time.Second}).Dial(network, address)
		return err
	})
	return c, err
}

// server answers every connection with the address it came from, or every
// datagram with itself.
type server struct {
	addr string
	seen atomic.Int64
	mu   sync.Mutex
	from []string
}

func (s *server) saw(from string) {
	s.seen.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = append(s.from, from)
}

// await waits until the server has seen n connections or datagrams.
func (s *server) await(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.seen.Load() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s saw %d, want %d", s.addr, s.seen.Load(), n)
		}
	}
}

// listen serves TCP and UDP at addr in the namespace; nil is the machine.
func listen(t *testing.T, n *netns, addr string) *server {
	t.Helper()
	s := &server{addr: addr}
	var tcp net.Listener
	var udp net.PacketConn
	open := func() (err error) {
		if tcp, err = net.Listen("tcp4", addr); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp4", addr)
		return err
	}
	if n == nil {
		must(t, open())
	} else {
		must(t, n.in(open))
	}
	var wg sync.WaitGroup
	over, end := context.WithCancel(context.Background())
	t.Cleanup(func() { tcp.Close(); udp.Close(); end(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			s.saw(c.RemoteAddr().String())
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(over, func() { c.Close() })()
				fmt.Fprintf(c, "%s\n", c.RemoteAddr())
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				_, _ = io.Copy(c, c)
			})
		}
	})
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			k, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			s.saw(from.String())
			_, _ = udp.WriteTo(buf[:k], from)
		}
	})
	return s
}

// guest stands for the network stack in a sandbox: the slot's address on the
// slot's interface.
func guest(t testing.TB, s Slot) *netns {
	t.Helper()
	n, err := openNetns(s.Namespace)
	must(t, err)
	t.Cleanup(n.close)
	n.addAddr(t, s.Interface, s.Address.String())
	must(t, n.route.RouteAdd(&netlink.Route{Gw: s.Gateway.AsSlice()}))
	return n
}

func newManager(t *testing.T, cfg Config) *Manager {
	t.Helper()
	if cfg.Owner == "" {
		cfg.Owner = "testowna"
	}
	m := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	must(t, m.Setup(t.Context()))
	return m
}

func take(t *testing.T, m *Manager) Slot {
	t.Helper()
	s, err := m.Take(t.Context())
	must(t, err)
	return s
}

// reaches checks that TCP to the address works, and gives the source address
// that the server saw.
func reaches(t *testing.T, n *netns, address string) string {
	t.Helper()
	c, err := n.dial("tcp4", address)
	if err != nil {
		t.Errorf("cannot reach %s: %v", address, err)
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 64)
	k, err := c.Read(buf)
	if err != nil {
		t.Errorf("no answer of %s: %v", address, err)
		return ""
	}
	seen, err := netip.ParseAddrPort(strings.TrimSpace(string(buf[:k])))
	must(t, err)
	return seen.Addr().String()
}

// unreachable checks that neither TCP nor UDP to the addresses gets an answer.
func unreachable(t *testing.T, n *netns, addresses ...string) {
	t.Helper()
	var wg sync.WaitGroup
	for _, a := range addresses {
		wg.Go(func() {
			if c, err := n.dial("tcp4", a); err == nil {
				c.Close()
				t.Errorf("TCP to %s works and must not", a)
			}
		})
		wg.Go(func() {
			c, err := n.dial("udp4", a)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			_, _ = c.Write([]byte("hello"))
			if _, err := c.Read(make([]byte, 16)); err == nil {
				t.Errorf("UDP to %s works and must not", a)
			}
		})
	}
	wg.Wait()
}

func cidr(s string) *net.IPNet {
	ip, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	n.IP = ip
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
