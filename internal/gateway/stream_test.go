package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

func TestEventsArriveAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}))
	resp, err := w.http.RoundTrip(w.request("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 { // each is read before the next is sent
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
}

// The answer may begin while the request goes on, also over HTTP/1.1.
func TestBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, strings.ToUpper(line))
			_ = rc.Flush()
		}
	}))
	body, feed := io.Pipe()
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := w.http.RoundTrip(w.request("POST", "/", body))
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	if _, err := io.WriteString(feed, "one\n"); err != nil {
		t.Fatal(err)
	}
	resp := <-answered
	if resp == nil {
		return
	}
	defer resp.Body.Close()
	out := bufio.NewReader(resp.Body)
	for _, word := range []string{"one", "two", "three"} {
		if line, err := out.ReadString('\n'); err != nil || line != strings.ToUpper(word)+"\n" {
			t.Fatalf("%q %v", line, err)
		}
		if word != "three" {
			if _, err := io.WriteString(feed, map[string]string{"one": "two\n", "two": "three\n"}[word]); err != nil {
				t.Fatal(err)
			}
		}
	}
	feed.Close()
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		w.Header().Set("Trailer", "X-Sum")
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(io.MultiWriter(w, sum), r.Body)
		w.Header().Set("X-Sum", hex.EncodeToString(sum.Sum(nil)))
	}))
	data := make([]byte, 50<<20)
	rand.Read(data)
	want := sha256.Sum256(data)
	resp, err := w.http.RoundTrip(w.request("POST", "/", strings.NewReader(string(data))))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := sha256.New()
	if n, err := io.Copy(sum, resp.Body); err != nil || n != int64(len(data)) {
		t.Fatal(n, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != hex.EncodeToString(want[:]) || resp.Trailer.Get("X-Sum") != hex.EncodeToString(want[:]) {
		t.Error("the bytes, or the trailer, are others")
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, data); err != nil {
				return
			}
		}
	}))
	w.boxes.set(func(b *boxes) { b.visibility = api.PreviewPrivate })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := "ws://" + w.host(w.port) + "/"
	options := &websocket.DialOptions{HTTPClient: &http.Client{Transport: w.http}}
	if c, resp, err := websocket.Dial(ctx, url, options); err == nil || resp == nil || resp.StatusCode != 401 {
		t.Fatal(c, resp, err)
	}
	c, _, err := websocket.Dial(ctx, url+"?ps_token="+w.signer.Token(someID, w.port, time.Now().Add(time.Minute)), options)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for i := range 20 {
		text := strings.Repeat("x", i*1000)
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := c.Read(ctx); err != nil || string(data) != text {
			t.Fatalf("%d bytes came back: %v", len(data), err)
		}
	}
	c.Close(websocket.StatusNormalClosure, "")
}

// TestGRPC: calls of gRPC go in over HTTP/2, both ways at once and with trailers.
func TestGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" {
			t.Errorf("%s, TE %q", r.Proto, r.Header.Get("Te"))
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(flushing{w}, r.Body)
		w.Header().Set("Grpc-Status", "7")
		w.Header().Set("Grpc-Message", "as it is")
	}))
	h2 := &http.Transport{Protocols: new(http.Protocols), DialContext: w.http.DialContext}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	body, feed := io.Pipe()
	resp, err := h2.RoundTrip(w.request("POST", "/pkg.Service/Method", body, "Content-Type", "application/grpc+proto", "Te", "trailers"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4)
	for _, word := range []string{"ping", "pong"} {
		if _, err := io.WriteString(feed, word); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != word {
			t.Fatalf("%q %v", buf, err)
		}
	}
	feed.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.Trailer.Get("Grpc-Status") != "7" || resp.Trailer.Get("Grpc-Message") != "as it is" {
		t.Errorf("trailers %v", resp.Trailer)
	}
	w.boxes.set(func(b *boxes) { b.awake = api.Errorf(api.CodeCapacity, "no room") })
	refused, err := h2.RoundTrip(w.request("POST", "/", http.NoBody, "Content-Type", "application/grpc", "Te", "trailers"))
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode != 200 || refused.Header.Get("Grpc-Status") != "14" || refused.Header.Get("Grpc-Message") != string(api.CodeCapacity) {
		t.Errorf("%d %v", refused.StatusCode, refused.Header)
	}
}

type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	_ = http.NewResponseController(f.ResponseWriter).Flush()
	return n, err
}

// What comes by HTTP/2 and is no gRPC goes in as every server understands it.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	h2 := &http.Transport{Protocols: new(http.Protocols), DialContext: w.http.DialContext}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	resp, err := h2.RoundTrip(w.request("GET", "/a?b", nil, "Cookie", "a=1", "Cookie", "ps_preview=x; b=2"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 {
		t.Fatal(err, resp.Proto)
	}
	m := reflected(t, string(body))
	if m.Proto != "HTTP/1.1" || m.Host != w.host(w.port) || m.URI != "/a?b" || m.Header.Get("Cookie") != "a=1; b=2" {
		t.Errorf("%+v", m)
	}
}

// When the client leaves, what runs inside hears of it; and the other way round.
func TestLeaving(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
		close(left)
	}))
	ctx, leave := context.WithCancel(t.Context())
	resp, err := w.http.RoundTrip(w.request("GET", "/", nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	resp.Body.Close()
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the server inside does not hear that its client left")
	}
	if resp, err = w.http.RoundTrip(w.request("GET", "/cut", nil)); err != nil {
		return // cut off before the first byte of it went on
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an answer that was cut off looks whole")
	}
}
