//go:build linux

package guest_test

import (
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/guest"
)

// TestPorts: what listens is told with the name of its process, and a question
// that is held back is answered when that changes.
func TestPorts(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	has := func(l guest.Listeners) bool {
		i := slices.IndexFunc(l.Ports, func(p guest.Listener) bool { return p.Port == port })
		if i >= 0 && l.Ports[i].Process != name(t) {
			t.Errorf("%+v, want the process %q", l.Ports[i], name(t))
		}
		return i >= 0
	}
	now, err := d.Ports(t.Context())
	if err != nil || !has(now) {
		t.Fatalf("%+v, %v: port %d is not there", now, err, port)
	}
	time.AfterFunc(100*time.Millisecond, func() { l.Close() })
	for deadline := time.Now().Add(30 * time.Second); has(now); { // others on this machine come and go too
		if time.Now().After(deadline) {
			t.Fatal("nobody says that the port was closed")
		}
		if now, err = d.NextPorts(t.Context(), now.State, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// name is how the kernel calls this process.
func name(t *testing.T) string {
	data, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return string(data[:len(data)-1])
}
