package hostnet

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A capped guest may send a burst of a fiftieth of a second, and no less than
// makes a packet socket worth while; behind it a tenth of a second waits.
const (
	capBurstPart = 50
	capQueuePart = 10
	capLeast     = 32 << 10
)

// cap bounds what a guest sends, where its packets enter the kernel: the sender
// is held back there, and not told by losses. 0 is no bound.
func (k *kernel) cap(i, mbps int) error {
	n, err := openNetns(k.cfg.namespace(i))
	if err != nil {
		return unavailable(err, "the namespace of a network slot cannot be entered")
	}
	defer n.close()
	l, err := n.route.LinkByName(guestLink)
	if err != nil {
		return unavailable(err, "the interface of a guest is gone")
	}
	if mbps == 0 {
		return refusedBy(uncap(n.route, l), "a bandwidth cap cannot be removed (sch_tbf)")
	}
	return refusedBy(n.route.QdiscReplace(bucket(l, mbps)), "a bandwidth cap cannot be set (sch_tbf)")
}

func bucket(l netlink.Link, mbps int) *netlink.Tbf {
	rate := uint64(mbps) * 1_000_000 / 8
	burst := max(uint32(rate/capBurstPart), capLeast)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Limit:      burst + max(uint32(rate/capQueuePart), capLeast),
		Buffer:     netlink.Xmittime(rate, burst),
	}
}

// uncap removes the queue that bucket made; no other is there.
func uncap(h *netlink.Handle, l netlink.Link) error {
	list, err := dump(func() ([]netlink.Qdisc, error) { return h.QdiscList(l) })
	if err != nil {
		return err
	}
	for _, q := range list {
		if q.Type() != "tbf" || q.Attrs().Parent != netlink.HANDLE_ROOT {
			continue
		}
		if err := h.QdiscDel(q); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
