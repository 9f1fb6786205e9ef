package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/florianl/go-nflog/v2"
	"golang.org/x/sys/unix"
)

// groupConntrackDestroy is the kernel's group of news about connections that
// have ended.
const groupConntrackDestroy = 3

// flowBuffer is what the kernel keeps for a reader that is busy.
const flowBuffer = 4 << 20

// watch reports ended connections and refused attempts, of whatever source,
// until ctx ends. lost is called when the kernel had news that it could not keep.
func (k *kernel) watch(ctx context.Context, emit func(Flow), lost func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 2)
	go func() { done <- k.watchEnded(ctx, emit, lost) }()
	go func() { done <- k.watchRefused(ctx, emit, lost) }()
	first := <-done
	cancel() // one without the other is half a log
	return errors.Join(first, <-done)
}

func (k *kernel) watchEnded(ctx context.Context, emit func(Flow), lost func()) error {
	c, err := dialConntrack()
	if err == nil {
		defer c.Close()
		err = errors.Join(c.JoinGroup(groupConntrackDestroy), c.SetReadBuffer(flowBuffer))
	}
	if err != nil {
		return refusedBy(err, "the ends of connections cannot be watched (nf_conntrack_netlink)")
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		news, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			lost()
			continue
		case err != nil:
			return unavailable(err, "the ends of connections cannot be watched")
		}
		for _, m := range news {
			if t, err := readTracked(m.Data); err == nil {
				k.ended(t, time.Now(), emit)
			}
		}
	}
}

func (k *kernel) ended(t tracked, now time.Time, emit func(Flow)) {
	if !t.source.IsValid() || !t.target.IsValid() || t.via == k.own.gate {
		return
	}
	if t.ended.IsZero() {
		t.ended = now
	}
	if t.began.IsZero() {
		t.began = t.ended
	}
	emit(Flow{
		Source:   t.source,
		Protocol: protocolName(t.protocol),
		Target:   netip.AddrPortFrom(t.target, t.port),
		Began:    t.began,
		Ended:    t.ended,
		Sent:     int64(t.sent),
		Received: int64(t.received),
	})
}

// watchRefused reads what logRefused writes. The kernel gathers some packets,
// or some of a second, for one message.
func (k *kernel) watchRefused(ctx context.Context, emit func(Flow), lost func()) error {
	const gather, gatherFor = 32, 10 // packets, hundredths of a second
	l, err := nflog.Open(&nflog.Config{Group: k.own.log, Copymode: nflog.CopyPacket, Bufsize: refusedBytes, QThresh: gather, Timeout: gatherFor})
	if err != nil {
		return refusedBy(err, "the log of refused connections cannot be opened (nfnetlink_log)")
	}
	defer l.Close()
	if err := l.Con.SetReadBuffer(flowBuffer); err != nil {
		return unavailable(err, "the log of refused connections cannot be opened")
	}
	// The library is left only by the end of this context.
	reading, stop := context.WithCancel(ctx)
	defer stop()
	broken := make(chan error, 1)
	hear := func(a nflog.Attribute) int {
		if a.Payload == nil {
			return 0
		}
		at := time.Now()
		if a.Timestamp != nil {
			at = *a.Timestamp
		}
		if f, ok := refusedPacket(*a.Payload, at); ok {
			emit(f)
		}
		return 0
	}
	fail := func(err error) int {
		if errors.Is(err, unix.ENOBUFS) && reading.Err() == nil {
			lost()
			return 0
		}
		broken <- err
		return 1
	}
	if err := l.RegisterWithErrorFunc(reading, hear, fail); err != nil {
		return refusedBy(err, "the log of refused connections cannot be read (nfnetlink_log)")
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		if ctx.Err() != nil {
			return nil
		}
		return unavailable(err, "the log of refused connections cannot be read")
	}
}
