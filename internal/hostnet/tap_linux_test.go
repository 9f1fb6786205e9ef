package hostnet

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// vm is a microVM as far as its network goes: it reads and writes frames.
type vm struct{ tap *os.File }

func openVM(t *testing.T, n *netns, name string) vm {
	t.Helper()
	var v vm
	must(t, n.in(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return err
		}
		v.tap = os.NewFile(uintptr(fd), name)
		return nil
	}))
	t.Cleanup(func() { v.tap.Close() })
	return v
}

const vnetHeader = 10

func (v vm) send(t *testing.T, from, to netip.AddrPort, payload string) {
	t.Helper()
	frame := make([]byte, vnetHeader)
	frame = append(frame, hardware(hostMAC)...)
	frame = append(frame, hardware(guestMAC)...)
	frame = append(frame, 0x08, 0x00)
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
	copy(ip[12:], from.Addr().AsSlice())
	copy(ip[16:], to.Addr().AsSlice())
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	frame = append(frame, ip...)
	frame = binary.BigEndian.AppendUint16(frame, from.Port())
	frame = binary.BigEndian.AppendUint16(frame, to.Port())
	frame = binary.BigEndian.AppendUint16(frame, uint16(8+len(payload)))
	frame = append(frame, 0, 0) // without a checksum
	_, err := v.tap.Write(append(frame, payload...))
	must(t, err)
}

// receive sends, again and again since a tap drops what comes before the kernel
// has noticed its carrier, until a datagram with the payload comes, and gives its
// source and target.
func (v vm) receive(t *testing.T, payload string, send func()) (from, to netip.AddrPort) {
	t.Helper()
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(30 * time.Second); ; {
		if time.Now().After(deadline) {
			t.Fatalf("%q did not come", payload)
		}
		send()
		must(t, v.tap.SetReadDeadline(time.Now().Add(time.Second)))
		for {
			n, err := v.tap.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			must(t, err)
			const headers = vnetHeader + 14 + 20 + 8
			if n < headers || buf[vnetHeader+14+9] != unix.IPPROTO_UDP || string(buf[headers:n]) != payload {
				continue
			}
			ip, udp := buf[vnetHeader+14:], buf[vnetHeader+14+20:]
			at := func(a, p []byte) netip.AddrPort {
				return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a)), binary.BigEndian.Uint16(p))
			}
			return at(ip[12:16], udp), at(ip[16:20], udp[2:])
		}
	}
}

// Two microVMs with the same addresses have each its own way.
func TestTaps(t *testing.T) {
	onMachine(t, func(t *testing.T) {
		if _, err := os.Stat("/dev/net/tun"); err != nil {
			t.Skip("SKIPPED: this machine has no /dev/net/tun")
		}
		w := newWorld(t)
		web := listen(t, w.ns, webPublic+":80")
		m := newManager(t, Config{Taps: true})
		for _, c := range m.Checks(t.Context()) {
			if !c.OK {
				t.Errorf("%s: %s", c.Name, c.Detail)
			}
		}
		same := netip.AddrPortFrom(tapGuest.Addr(), 5000)
		target := netip.MustParseAddrPort(webPublic + ":80")
		var slots []Slot
		var vms []vm
		for range 2 {
			s := take(t, m)
			n, err := openNetns(s.Namespace)
			must(t, err)
			t.Cleanup(n.close)
			slots, vms = append(slots, s), append(vms, openVM(t, n, s.Tap))
		}
		for i, v := range vms {
			payload := "hello" + string(rune('0'+i))
			from, to := v.receive(t, payload, func() { v.send(t, same, target, payload) })
			if from != target || to != same {
				t.Errorf("the answer went from %v to %v", from, to)
			}
			// The host dials the slot's address.
			c, err := net.Dial("udp4", netip.AddrPortFrom(slots[i].Address.Addr(), 7000).String())
			must(t, err)
			defer c.Close()
			from, to = v.receive(t, payload+"!", func() {
				_, err := c.Write([]byte(payload + "!"))
				must(t, err)
			})
			if to != netip.AddrPortFrom(tapGuest.Addr(), 7000) {
				t.Errorf("the host's datagram went to %v", to)
			}
			v.send(t, to, from, "back")
			buf := make([]byte, 16)
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			if n, err := c.Read(buf); err != nil || string(buf[:n]) != "back" {
				t.Errorf("the host heard %q, %v", buf, err)
			}
		}
		// Rules hold, and so does the guest's identity.
		seen, sent := web.seen.Load(), int64(0)
		must(t, m.Apply(t.Context(), slots[1], Rules{Offline: true}))
		vms[1].send(t, netip.AddrPortFrom(tapGuest.Addr(), 5001), target, "offline")
		vms[0].send(t, netip.MustParseAddrPort("192.0.0.3:5000"), target, "forged")
		vms[0].send(t, netip.AddrPortFrom(slots[1].Address.Addr(), 5000), target, "forged")
		vms[0].receive(t, "last", func() { sent++; vms[0].send(t, same, target, "last") })
		if n := web.seen.Load() - seen; n > sent {
			t.Errorf("%d datagrams arrived of %d honest ones", n, sent)
		}
		must(t, m.kernel.user.Close()) // as when the process is killed
		m = newManager(t, Config{Taps: true})
		for _, s := range slots {
			got, err := m.Adopt(t.Context(), s.Index)
			must(t, err)
			if got != s {
				t.Errorf("adopted %+v, want %+v", got, s)
			}
			must(t, m.Release(t.Context(), s))
		}
		must(t, m.Close(t.Context()))
	})
}
