package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// tunnel opens an upgraded connection; inside has the other end.
func (w *world) tunnel(ctx context.Context) (*net.TCPConn, *bufio.Reader) {
	w.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.addr)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r := w.request("GET", "/", nil, "Connection", "Upgrade", "Upgrade", "raw")
	if err := r.Write(conn); err != nil {
		w.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		w.Fatal(resp, err)
	}
	return conn.(*net.TCPConn), in
}

// newTunnels is a world in which requests become connections, and where half of
// one lingers as long as is said.
func newTunnels(t *testing.T, linger time.Duration) (*world, <-chan *net.TCPConn) {
	t.Helper()
	inside := make(chan *net.TCPConn, 8)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
		inside <- conn.(*net.TCPConn)
	}))
	w.linger = linger
	return w, inside
}

// ended waits until no request is under way.
func (w *world) ended() {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		uses := 0
		if w.boxes.set(func(b *boxes) { uses = b.uses }); uses == 0 {
			return
		}
	}
	w.Fatal("half a connection holds the sandbox awake")
}

// What runs inside may go on when the visitor has nothing more to say, but cannot
// hold the connection in silence; and the other way round.
func TestHalfAConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]bool{"visitor": false, "sandbox": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const linger = 2 * time.Second
			w, inside := newTunnels(t, linger)
			visitor, fromInside := w.tunnel(t.Context())
			box := <-inside
			var leaves, stays, hears = visitor, box, io.Reader(fromInside)
			if turn {
				leaves, stays, hears = box, visitor, box
			}
			if err := leaves.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(stays); err != nil {
				t.Fatal("the end did not come through:", err)
			}
			// Together these last longer than silence may.
			buf := make([]byte, 1)
			for range 30 {
				if _, err := stays.Write([]byte{'x'}); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(hears, buf); err != nil {
					t.Fatal("what is not silent was cut off:", err)
				}
				time.Sleep(linger / 20)
			}
			w.ended()
		})
	}
}

// A connection whose ends are both there may be silent for as long as they like.
func TestSilentTunnel(t *testing.T) {
	t.Parallel()
	w, inside := newTunnels(t, 100*time.Millisecond)
	visitor, _ := w.tunnel(t.Context())
	box := <-inside
	time.Sleep(time.Second)
	if _, err := io.WriteString(visitor, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(box, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	visitor.Close()
	w.ended() // though what is inside says nothing and stays
}

// One sandbox does not take what all need.
func TestCrowd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	for range maxUnderWay {
		if !w.crowds.enter(someID) {
			t.Fatal("refused too early")
		}
	}
	resp, body := w.get("/")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || failure(t, body).Code != api.CodeCapacity || w.boxes.wakes != 0 {
		t.Errorf("%d %v %s, %d wakes", resp.StatusCode, resp.Header, body, w.boxes.wakes)
	}
	if !w.crowds.enter("another") {
		t.Error("another sandbox is full too")
	}
	w.crowds.leave("another")
	w.crowds.leave(someID)
	if resp, body := w.get("/"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for range maxUnderWay - 1 {
		w.crowds.leave(someID)
	}
	w.ended()
	w.crowds.mu.Lock()
	defer w.crowds.mu.Unlock()
	if len(w.crowds.byID) != 0 {
		t.Errorf("%v is left", w.crowds.byID)
	}
}
