package hostnet

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// listenProxy serves the gate's proxy port: it tells each connection where it
// was going, and counts them.
func listenProxy(t *testing.T, gate Gate) *atomic.Int64 {
	t.Helper()
	l, err := net.Listen("tcp4", netip.AddrPortFrom(gate.Address, gate.ProxyPort).String())
	must(t, err)
	var seen atomic.Int64
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen.Add(1)
			to, err := OriginalDestination(c.(*net.TCPConn))
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintln(c, to)
			c.Close()
		}
	})
	return &seen
}
