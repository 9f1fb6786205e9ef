package host_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

func itoa(n int) string { return strconv.Itoa(n) }

// dialled connects to a port of a sandbox over the wire.
func dialled(t *testing.T, c *host.Client, id string, port int) net.Conn {
	t.Helper()
	conn, err := c.Dial(ctx(t), id, port)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

func sandboxed(t *testing.T, l *loopback) string {
	t.Helper()
	id := api.NewID()
	_, err := l.Create(t.Context(), host.Spec{ID: id})
	must(t, err)
	return id
}

func TestDialCarriesBytesBothWays(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	id := sandboxed(t, l)
	c := serve(t, l).client(t)
	port := listen(t, echo)
	data := make([]byte, 32<<20)
	rand.Read(data)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			conn := dialled(t, c, id, port)
			wg.Go(func() {
				if _, err := conn.Write(data); err != nil {
					t.Error(err)
				}
				// Our end is passed on, and what the guest says after it arrives.
				if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, append(data[:len(data):len(data)], "bye"...)) {
				t.Errorf("%d bytes of %d came back, or others", len(got), len(data))
			}
		})
	}
	wg.Wait()
}

func TestDialFailuresHaveCodes(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	id := sandboxed(t, l)
	c := serve(t, l).client(t)
	_, err := c.Dial(ctx(t), "unknown", 80)
	wantCode(t, err, api.CodeSandboxNotFound)
	_, err = c.Dial(ctx(t), id, 1)
	wantCode(t, err, api.CodeSandboxState)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Dial(ended, id, 80)
	wantCode(t, err, api.CodeCanceled)
}

// A guest that speaks first may be heard together with the switch of protocols.
func TestDialGuestSpeaksFirst(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	id := sandboxed(t, l)
	c := serve(t, l).client(t)
	port := listen(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n") })
	for range 20 {
		got, err := io.ReadAll(dialled(t, c, id, port))
		if err != nil || string(got) != "SSH-2.0-x\r\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestDialClosesTheOtherEnd(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	id := sandboxed(t, l)
	w := serve(t, l)
	c := w.client(t)

	// The guest has not said its last when the client goes away for good, and
	// sends nothing that would tell it.
	ended := make(chan error, 8)
	port := listen(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		deadline := time.Now().Add(time.Minute)
		for time.Now().Before(deadline) {
			// A reset is the sign; a half-open connection takes these bytes.
			if _, err := c.Write([]byte("x")); err != nil {
				ended <- err
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		ended <- nil
	})
	conn := dialled(t, c, id, port)
	must(t, conn.Close())
	if err := <-ended; err == nil {
		t.Error("the guest's connection stays open after the client closed its own")
	}

	// The guest goes away: the client's writes fail sooner or later.
	port = listen(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	conn = dialled(t, c, id, port)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := conn.Write([]byte("x")); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the client's connection stays open after the guest closed its own")
		}
	}

	// The server stops.
	port = listen(t, echo)
	conn = dialled(t, c, id, port)
	w.stop()
	if _, err := io.ReadAll(conn); err != nil {
		t.Logf("ends with %v", err) // an end or a reset, not a hang
	}
}

// Over TLS the end of one direction and the end of the connection differ: only
// the second lets go of a guest that is silent.
func TestDialSilentGuestIsLetGo(t *testing.T) {
	t.Parallel()
	l := newLoopback()
	id := sandboxed(t, l)
	c := serve(t, l).client(t)
	accepted := make(chan *net.TCPConn, 1)
	release := make(chan struct{})
	port := listen(t, func(c *net.TCPConn) { accepted <- c; <-release })
	defer close(release)
	conn := dialled(t, c, id, port)
	guest := <-accepted
	must(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	must(t, guest.SetDeadline(time.Now().Add(time.Minute)))
	if _, err := guest.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the guest reads %v, want the end", err)
	}
	_, err := guest.Write([]byte("still there?"))
	must(t, err)
	if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
		t.Fatalf("after half a close nothing arrives: %v", err)
	}
	must(t, conn.Close())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := guest.Write([]byte("x")); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the guest's connection is kept for nobody")
		}
	}
}
