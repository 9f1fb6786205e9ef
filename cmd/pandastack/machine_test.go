//go:build linux

package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machine is a host of its own, as far as networks go: a network namespace with
// one uplink to a world that the test makes, and a mount namespace with its own
// /run and resolv.conf. The machine's real network is out of reach of both.
type machine struct {
	t          *testing.T
	host, rest namespace // the machine, and the world behind its uplink
}

// Addresses of the machine and of the world. None is in a range that is closed
// to all sandboxes, except those that must be.
const (
	machineAddress = "203.0.113.1"
	worldAddress   = "203.0.113.254"

	webAddress      = "198.51.100.10" // two names, plain and TLS
	otherAddress    = "198.51.100.20" // an echo server, and another site
	dnsAddress      = "198.51.100.53"
	metadataAddress = "169.254.169.254"
	privateAddress  = "10.1.2.3"
)

// namespace is held by a process that sleeps in it.
type namespace struct {
	holder *exec.Cmd
	net    *os.File
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	needRoot(t)
	m := &machine{t: t, host: newNamespace(t, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS), rest: newNamespace(t, syscall.CLONE_NEWNET)}
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+dnsAddress+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `set -e
		mount --make-rprivate /
		mount -t tmpfs tmpfs /run
		mount --bind "$1" "$(readlink -f /etc/resolv.conf)" 2>/dev/null || { rm -f /run/x; mkdir -p "$(dirname "$(readlink -m /etc/resolv.conf)")"; cp "$1" "$(readlink -m /etc/resolv.conf)"; }`
	if out, err := exec.Command("nsenter", "-t", m.host.pid(), "-m", "sh", "-c", script, "sh", resolv).CombinedOutput(); err != nil {
		t.Fatalf("mounts of the machine: %v\n%s", err, out)
	}
	m.wire()
	return m
}

func newNamespace(t *testing.T, flags uintptr) namespace {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	// Pdeathsig follows the thread that starts it, which must stay.
	started := make(chan error)
	end := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		<-end
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	n := namespace{holder: cmd}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		n.net.Close()
		close(end)
	})
	var err error
	if n.net, err = os.Open("/proc/" + n.pid() + "/ns/net"); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n namespace) pid() string { return strconv.Itoa(n.holder.Process.Pid) }

// in runs f on a thread that is in the namespace.
func (n namespace) in(f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		before, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			failed <- err
			return
		}
		defer before.Close()
		if err := unix.Setns(int(n.net.Fd()), unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		err = f()
		if unix.Setns(int(before.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		failed <- err
	}()
	return <-failed
}

func (n namespace) listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var l net.Listener
	err := n.in(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (n namespace) listenPacket(t *testing.T, address string) net.PacketConn {
	t.Helper()
	var p net.PacketConn
	err := n.in(func() (err error) {
		p, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// wire links the machine with its world.
func (m *machine) wire() {
	m.t.Helper()
	check := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	check(m.host.in(func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wan0"}, PeerName: "machine0", PeerNamespace: netlink.NsPid(m.rest.holder.Process.Pid)}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		return address("wan0", machineAddress+"/24", worldAddress)
	}))
	check(m.rest.in(func() error {
		if err := address("machine0", worldAddress+"/24", ""); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []string{webAddress, otherAddress, dnsAddress, metadataAddress, privateAddress} {
			addr, err := netlink.ParseAddr(a + "/32")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(lo, addr); err != nil {
				return err
			}
		}
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("0"), 0)
	}))
}

// address gives an interface its address and brings it up, and loopback too.
func address(name, cidr, gateway string) error {
	for _, up := range []string{"lo", name} {
		l, err := netlink.LinkByName(up)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	if gateway == "" {
		return nil
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(gateway)})
}

// program is this binary under the name of the product, on the machine.
func (m *machine) program(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	line := []string{"-t", m.host.pid(), "-n", "-m", "bash", "-c", `exec -a pandastack "$0" "$@"`, self}
	return exec.Command("nsenter", append(line, args...)...)
}

// httpClient reaches servers of the machine.
func (m *machine) httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = m.host.in(func() (err error) {
			c, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}}}
}

// serve starts a server on the machine, which ends with the test.
func (m *machine) serve(dir string, args ...string) *server {
	m.t.Helper()
	s := &server{dataDir: dir, program: m.program, http: m.httpClient()}
	return s.owned(m.t, args...)
}
