package host

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
)

// closeWriter is a connection that can say "no more from me" and still listen.
type closeWriter interface{ CloseWrite() error }

// join carries bytes both ways between a client and a guest until both have
// said their last, one is gone, or ctx ends, and closes both. The end of one
// direction is passed on as such. It returns when nothing of it runs any more.
func join(ctx context.Context, client net.Conn, fromClient io.Reader, guest net.Conn) {
	closeBoth := sync.OnceFunc(func() {
		client.Close()
		guest.Close()
	})
	defer closeBoth()
	defer context.AfterFunc(ctx, closeBoth)()

	var copies, watch sync.WaitGroup
	copies.Go(func() {
		if !carry(guest, fromClient) {
			closeBoth()
			return
		}
		watch.Go(func() {
			if awaitGone(client) {
				closeBoth()
			}
		})
	})
	copies.Go(func() {
		if !carry(client, guest) {
			closeBoth()
		}
	})
	copies.Wait()
	closeBoth()
	watch.Wait()
}

// carry copies to the end and passes the end on. It reports whether the other
// direction may go on.
func carry(to net.Conn, from io.Reader) bool {
	if _, err := io.Copy(to, from); err != nil {
		return false
	}
	half, ok := to.(closeWriter)
	return ok && half.CloseWrite() == nil
}

// awaitGone returns when a client that has said its last is gone altogether.
// Over TLS the two differ: the end of what it sends is a message, and its
// connection stays open under it until it closes that too. Without TLS nothing
// tells them apart, and the answer is false at once.
func awaitGone(client net.Conn) bool {
	t, ok := client.(*tls.Conn)
	if !ok {
		return false
	}
	var b [1]byte
	_, _ = t.NetConn().Read(b[:])
	return true
}
