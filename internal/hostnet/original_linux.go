package hostnet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OriginalDestination is where a connection was going before it was redirected
// to the gate. For one that was not redirected it is the local address.
func OriginalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, unavailable(err, "the connection is closed")
	}
	var to unix.RawSockaddrInet4
	var failed error
	err = raw.Control(func(fd uintptr) {
		size := uint32(unsafe.Sizeof(to))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_IP, unix.SO_ORIGINAL_DST,
			uintptr(unsafe.Pointer(&to)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			failed = errno
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return netip.AddrPort{}, unavailable(err, "the original destination of a connection is not known")
	}
	var port [2]byte
	binary.NativeEndian.PutUint16(port[:], to.Port)
	return netip.AddrPortFrom(netip.AddrFrom4(to.Addr), binary.BigEndian.Uint16(port[:])), nil
}
