package gvisor

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
)

// linkArgs describes the guest's interfaces to the sentry: loopback, and eth0
// on a packet socket in the machine's network namespace.
func linkArgs(conf *config.Config, n driver.Network, restore bool) (*boot.CreateLinksAndRoutesArgs, error) {
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return nil, api.Wrap(api.CodeNetworkUnavailable, err, "the network slot has no hardware address")
	}
	sock, err := packetSocket(n.Namespace, n.Interface)
	if err != nil {
		return nil, api.Wrap(api.CodeNetworkUnavailable, err, "cannot attach to the sandbox's network")
	}
	loopback := boot.DefaultLoopbackLink
	loopback.GVisorGRO = conf.GVisorGRO
	subnet := n.Address.Masked()
	args := &boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: []boot.LoopbackLink{loopback},
		FDBasedLinks: []boot.FDBasedLink{{
			Name:                 "eth0",
			MTU:                  n.MTU,
			Addresses:            []boot.IPWithPrefix{{Address: n.Address.Addr().AsSlice(), PrefixLen: n.Address.Bits()}},
			Routes:               []boot.Route{{Destination: net.IPNet{IP: subnet.Addr().AsSlice(), Mask: net.CIDRMask(subnet.Bits(), 32)}}},
			GSOMaxSize:           gsoMaxSize,
			RXChecksumOffload:    true,
			TXChecksumOffload:    conf.TXChecksumOffload,
			GVisorGRO:            conf.GVisorGRO,
			QDisc:                conf.QDisc,
			LinkAddress:          mac,
			NumChannels:          1,
			ProcessorsPerChannel: conf.NetworkProcessorsPerChannel,
		}},
		Defaultv4Gateway: boot.DefaultRoute{
			Route: boot.Route{Destination: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Gateway: n.Gateway.AsSlice()},
			Name:  "eth0",
		},
		IsRestore: restore,
	}
	if gateway, err := net.ParseMAC(n.GatewayMAC); err == nil {
		args.FDBasedLinks[0].Neighbors = []boot.Neighbor{{IP: n.Gateway.AsSlice(), HardwareAddr: gateway}}
	}
	args.FilePayload.Files = []*os.File{sock}
	return args, nil
}

// gsoMaxSize is the largest segment that the kernel cuts for us.
const gsoMaxSize = 65536

// packetSocket opens a raw packet socket on an interface of a network
// namespace, with the virtio header that carries segmentation and checksums.
func packetSocket(namespace, iface string) (*os.File, error) {
	fd, err := socketIn(namespace)
	if err != nil {
		return nil, err
	}
	sock := os.NewFile(uintptr(fd), "packet:"+iface)
	index, err := interfaceIndex(fd, iface)
	if err != nil {
		sock.Close()
		return nil, err
	}
	const ethPAll = 0x0300 // ETH_P_ALL in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ethPAll, Ifindex: index}); err != nil {
		sock.Close()
		return nil, fmt.Errorf("bind packet socket to %s: %w", iface, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		sock.Close()
		return nil, fmt.Errorf("enable segmentation offload on %s: %w", iface, err)
	}
	// The default of 208 KiB drops packets at high rates.
	const buffer = 4 << 20
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer)
	return sock, nil
}

func interfaceIndex(fd int, name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return int(req.Uint32()), nil
}

// socketIn makes an unbound packet socket that belongs to a namespace. The
// thread that enters it leaves again before other code can run on it; one that
// cannot leave is ended with its goroutine.
func socketIn(namespace string) (int, error) {
	target, err := os.Open(namespace)
	if err != nil {
		return -1, err
	}
	defer target.Close()
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			runtime.UnlockOSThread()
			done <- result{-1, err}
			return
		}
		defer home.Close()
		if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- result{-1, fmt.Errorf("enter %s: %w", namespace, err)}
			return
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{fd, err}
	}()
	r := <-done
	return r.fd, r.err
}
