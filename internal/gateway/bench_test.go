package gateway

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// BenchmarkRequest is a small and a large answer through the gateway, and beside
// that without it.
func BenchmarkRequest(b *testing.B) {
	block := make([]byte, 1<<20)
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for size > 0 {
			n, err := w.Write(block[:min(size, len(block))])
			if err != nil {
				return
			}
			size -= n
		}
	}))
	defer inside.Close()
	port := inside.Listener.Addr().(*net.TCPAddr).Port
	signer, err := NewSigner([]byte("secret"))
	if err != nil {
		b.Fatal(err)
	}
	g := New(Config{Domain: "localhost", Sandboxes: &boxes{era: 1}, Signer: signer, Log: slog.New(slog.DiscardHandler), NewRequestID: func() string { return "" }})
	defer g.Close()
	front := httptest.NewServer(g)
	defer front.Close()
	for _, way := range []struct{ name, addr string }{{"direct", inside.Listener.Addr().String()}, {"preview", front.Listener.Addr().String()}} {
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", way.addr)
		}}}
		for name, size := range map[string]int{"small": 100, "64MiB": 64 << 20} {
			b.Run(name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					resp, err := client.Get("http://" + label(someID, port) + ".localhost/" + strconv.Itoa(size))
					if err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(size) {
						b.Fatal(n, err)
					}
					resp.Body.Close()
				}
			})
		}
		client.CloseIdleConnections()
	}
}
