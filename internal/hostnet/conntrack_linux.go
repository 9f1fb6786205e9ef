package hostnet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of the kernel's interface to its table of connections.
const (
	ctDump   = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctTupleOriginal    = 1
	ctTupleReply       = 2
	ctCountersOriginal = 9
	ctCountersReply    = 10
	ctTimes            = 20
	ctFilter           = 25

	ctIP         = 1 // of a tuple
	ctProtocol   = 2
	ctSourceV4   = 1 // of its addresses
	ctTargetV4   = 2
	ctNumber     = 1 // of its protocol
	ctTargetPort = 3
	ctBytes      = 2 // of counters
	ctBegan      = 1 // of times
	ctEnded      = 2

	ctFilterFlags = 1
	ctBySource    = 1 << 0
	ctByTarget    = 1 << 1

	ctDestinationTranslated = 1 << 5 // of a connection's status
)

// tracked is a connection as the kernel knows it. Addresses that are not IPv4
// are not valid here.
type tracked struct {
	source, target, via netip.Addr // via is who answers: the target, or what it was translated to
	protocol            uint8
	port                uint16 // of the target, if the protocol is TCP or UDP
	sent, received      uint64
	began, ended        time.Time // zero where the kernel does not keep them
	raw                 []byte
}

// readTracked reads a message of the kernel.
func readTracked(message []byte) (tracked, error) {
	t := tracked{raw: message}
	if len(message) < len(netfilterHeader()) {
		return t, errors.New("a message about a connection is too short")
	}
	d, err := netlink.NewAttributeDecoder(message[len(netfilterHeader()):])
	if err != nil {
		return t, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case ctTupleOriginal:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				return readTuple(d, &t.source, &t.target, &t.protocol, &t.port)
			})
		case ctTupleReply:
			var to netip.Addr
			d.Nested(func(d *netlink.AttributeDecoder) error {
				return readTuple(d, &t.via, &to, new(uint8), new(uint16))
			})
		case ctCountersOriginal:
			d.Nested(func(d *netlink.AttributeDecoder) error { return readBytes(d, &t.sent) })
		case ctCountersReply:
			d.Nested(func(d *netlink.AttributeDecoder) error { return readBytes(d, &t.received) })
		case ctTimes:
			d.Nested(func(d *netlink.AttributeDecoder) error { return readTimes(d, &t.began, &t.ended) })
		}
	}
	if t.protocol != unix.IPPROTO_TCP && t.protocol != unix.IPPROTO_UDP {
		t.port = 0
	}
	return t, d.Err()
}

func readTuple(d *netlink.AttributeDecoder, from, to *netip.Addr, protocol *uint8, port *uint16) error {
	for d.Next() {
		switch d.Type() {
		case ctIP:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch a, ok := netip.AddrFromSlice(d.Bytes()); {
					case d.Type() == ctSourceV4 && ok && a.Is4():
						*from = a
					case d.Type() == ctTargetV4 && ok && a.Is4():
						*to = a
					}
				}
				return d.Err()
			})
		case ctProtocol:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case ctNumber:
						*protocol = d.Uint8()
					case ctTargetPort:
						*port = d.Uint16()
					}
				}
				return d.Err()
			})
		}
	}
	return d.Err()
}

func readBytes(d *netlink.AttributeDecoder, n *uint64) error {
	for d.Next() {
		if d.Type() == ctBytes {
			*n = d.Uint64()
		}
	}
	return d.Err()
}

func readTimes(d *netlink.AttributeDecoder, began, ended *time.Time) error {
	for d.Next() {
		at := d.Uint64()
		switch {
		case at == 0:
		case d.Type() == ctBegan:
			*began = time.Unix(0, int64(at))
		case d.Type() == ctEnded:
			*ended = time.Unix(0, int64(at))
		}
	}
	return d.Err()
}

func dialConntrack() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_NETFILTER, nil) }

// connections lists those that an address began (ctBySource) or was the target
// of (ctByTarget), one direction after the other, and without directions all of
// IPv4.
func connections(a netip.Addr, directions ...uint32) ([]tracked, error) {
	c, err := dialConntrack()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if len(directions) == 0 {
		return list(c, netfilterHeader(), func(tracked) bool { return true })
	}
	var out []tracked
	for _, by := range directions {
		request, err := connectionsOf(a, by)
		if err != nil {
			return nil, err
		}
		// A kernel before 5.8 does not know the filter and lists all.
		some, err := list(c, request, func(t tracked) bool {
			return by == ctBySource && t.source == a || by == ctByTarget && t.target == a
		})
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func list(c *netlink.Conn, request []byte, fits func(tracked) bool) ([]tracked, error) {
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: ctDump, Flags: netlink.Request | netlink.Dump},
		Data:   request,
	})
	if err != nil {
		return nil, err
	}
	var out []tracked
	for _, m := range answers {
		t, err := readTracked(m.Data)
		if err != nil {
			return nil, err
		}
		if fits(t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// connectionsOf is the body of the request: what to look for and where.
func connectionsOf(a netip.Addr, by uint32) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.NativeEndian
	e.Nested(ctTupleOriginal, func(e *netlink.AttributeEncoder) error {
		e.Nested(ctIP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(ctSourceV4, a.AsSlice())
			e.Bytes(ctTargetV4, a.AsSlice())
			return nil
		})
		return nil
	})
	e.Nested(ctFilter, func(e *netlink.AttributeEncoder) error {
		e.Uint32(ctFilterFlags, by)
		return nil
	})
	attrs, err := e.Encode()
	return append(netfilterHeader(), attrs...), err
}

func netfilterHeader() []byte { return []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0} }

// forgetAtOnce bounds a message of the socket.
const forgetAtOnce = 128

// forget removes connections from the table. The next packet of each is a new
// one to the rules. A guest can have a hundred thousand, so no answer is asked
// for and none is read: whoever needs to know lists them again.
func forget(list []tracked) error {
	c, err := dialConntrack()
	if err != nil {
		return err
	}
	defer c.Close()
	for part := range slices.Chunk(list, forgetAtOnce) {
		var batch []netlink.Message
		for _, t := range part {
			batch = append(batch, netlink.Message{
				Header: netlink.Header{Type: ctDelete, Flags: netlink.Request},
				Data:   t.raw, // names the connection by its ends and its number
			})
		}
		if _, err := c.SendMessages(batch); err != nil {
			return err
		}
	}
	return nil
}
