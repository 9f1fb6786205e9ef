package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

func (w *world) serveAt(to string, serve func(net.Conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[netip.MustParseAddrPort(to)] = serve
}

func (w *world) name(name string, records ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zone[name] = records
}

// oneConn is a listener for the one connection that there is.
type oneConn struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// serveHTTP is a web server on a connection.
func serveHTTP(c net.Conn, h http.Handler) {
	l := oneConn{make(chan net.Conn, 1), make(chan struct{})}
	l.conns <- c
	var once sync.Once
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			once.Do(func() { close(l.done) })
		}
	}}
	_ = server.Serve(l)
}

// client is an HTTP client in a sandbox that connects to an address whatever the
// URL says.
func (w *world) client(to string, conf *tls.Config) *http.Client {
	tr := &http.Transport{
		TLSClientConfig: conf, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return w.connect(boxA, to), nil },
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func certificate(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestTLS runs real TLS, HTTP/2 in it, with a large body both ways.
func TestTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com:443"}})
	w.name("packages.example.com", "203.0.113.20", "203.0.113.21")
	cert := certificate(t, "packages.example.com")
	w.serveAt("203.0.113.20:443", func(c net.Conn) {
		conf := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
		serveHTTP(tls.Server(c, conf), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(rw, r.Body)
		}))
	})
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	resp, err := w.client("203.0.113.99:443", &tls.Config{RootCAs: pool}).Post("https://packages.example.com/", "text/plain", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes of %d came back, %v", len(got), len(body), err)
	}
	// The refusal is one that TLS clients understand.
	_, err = w.client("203.0.113.20:443", &tls.Config{RootCAs: pool}).Get("https://evil.com/")
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("refused with %v", err)
	}
}

// TestHTTP runs real HTTP/1: kept connections, chunks both ways, and a refusal.
func TestHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	conns := 0
	expected := make(chan string, 100)
	w.serveAt("203.0.113.20:80", func(c net.Conn) {
		conns++
		serveHTTP(c, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			expected <- r.Header.Get("Expect")
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(rw, "%s %s %d %v", r.Method, r.Host, len(b), err)
		}))
	})
	client := w.client("203.0.113.20:80", nil)
	for _, size := range []int{0, 1, 100, 5000, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			body := io.Reader(strings.NewReader(strings.Repeat("x", size)))
			if chunked {
				body = struct{ io.Reader }{body}
			}
			resp, err := client.Post("http://packages.example.com/", "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf("POST packages.example.com %d <nil>", size); string(b) != want {
				t.Errorf("%q, want %q", b, want)
			}
		}
	}
	if conns != 1 {
		t.Errorf("%d connections", conns)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://packages.example.com/", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	waits := &http.Client{Transport: &http.Transport{
		ExpectContinueTimeout: patience, DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return w.connect(boxA, "203.0.113.20:80"), nil
		},
	}}
	for len(expected) > 0 {
		<-expected
	}
	resp, err := waits.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(b) != "PUT packages.example.com 5 <nil>" || <-expected != "100-continue" {
		t.Errorf("a client that waits to be asked for the body: %q", b)
	}
	resp, err = w.client("203.0.113.20:80", nil).Get("http://evil.com/")
	if err != nil {
		t.Fatal(err)
	}
	b, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(b), "network rules") {
		t.Errorf("%s %q", resp.Status, b)
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	w.serveAt("203.0.113.20:80", func(c net.Conn) {
		done := make(chan struct{})
		serveHTTP(c, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer close(done)
			ws, err := websocket.Accept(rw, r, nil)
			if err != nil {
				return
			}
			defer ws.CloseNow()
			for {
				kind, b, err := ws.Read(r.Context())
				if err != nil || ws.Write(r.Context(), kind, b) != nil {
					return
				}
			}
		}))
		<-done
	})
	ws, _, err := websocket.Dial(t.Context(), "ws://packages.example.com/", &websocket.DialOptions{HTTPClient: w.client("203.0.113.20:80", nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	// What looks like a request of another name is content now.
	for _, text := range []string{"hello", get + "Host: evil.com\r\n\r\n"} {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := ws.Read(t.Context()); err != nil || string(b) != text {
			t.Fatalf("%q, %v", b, err)
		}
	}
	ws.Close(websocket.StatusNormalClosure, "")
}

// TestWebSocketRefused sends what would be another request after a server has said
// no to a WebSocket.
func TestWebSocketRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	to := netip.MustParseAddrPort("203.0.113.20:80")
	w.serveAt(to.String(), func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
		w.sink(to, c)
	})
	c := w.connect(boxA, to.String())
	fmt.Fprint(c, get+"Host: packages.example.com\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"+get+"Host: evil.com\r\n\r\n")
	_, _ = io.ReadAll(c)
	w.line("box-a", deniedFor("rules"))
	if got := w.everything(); !strings.Contains(got, "WebSocket") || strings.Contains(got, "evil") {
		t.Errorf("the server received %q", got)
	}
}

// TestServerFirst is about protocols in which the client waits for a greeting.
func TestServerFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"db.example:5432"}})
	w.name("db.example", "203.0.113.40")
	w.serveAt("203.0.113.40:5432", func(c net.Conn) {
		_, _ = io.WriteString(c, "welcome\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "you said "+line)
	})
	w.ask(boxA, "db.example", 1)
	c := w.connect(boxA, "203.0.113.40:5432")
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || line != "welcome\n" {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(c, "GET lost HTTP/1.1\n") // nobody looks any more
	if line, err := r.ReadString('\n'); err != nil || line != "you said GET lost HTTP/1.1\n" {
		t.Fatalf("%q, %v", line, err)
	}
	c.Close()
	if line := w.line("box-a", isAllowed); line.Name != "db.example" || line.Port != 5432 || line.Received == 0 || line.Sent == 0 || line.Seconds == 0 {
		t.Errorf("the line is %+v", line)
	}
}

// TestAddressEntry is about connections that nobody looks into.
func TestAddressEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"203.0.113.0/28", "packages.example.com", "127.0.0.0/8", "169.254.0.0/16"}})
	w.name("any.example", "203.0.113.5")
	w.ask(boxA, "any.example", 1)
	c := w.connect(boxA, "203.0.113.5:9999")
	fmt.Fprint(c, hello(sni("evil.com"), extension(extECH, "\x00")))
	_ = c.CloseWrite() // the half that is open still brings the answer
	if b, err := io.ReadAll(c); err != nil || string(b) != "done" {
		t.Fatalf("%q, %v", b, err)
	}
	if line := w.line("box-a", isAllowed); line.Name != "any.example" || line.Received != 4 {
		t.Errorf("the line is %+v", line)
	}
	for _, to := range []string{"127.0.0.1:22", "169.254.169.254:80"} {
		c := w.connect(boxA, to)
		_, _ = io.ReadAll(c)
	}
	w.line("box-a", func(c api.Connection) bool { return c.Address == "127.0.0.1" && deniedFor("no sandbox")(c) })
	w.line("box-a", func(c api.Connection) bool { return c.Address == "169.254.169.254" && deniedFor("no sandbox")(c) })
}

// TestDenyByName is about the default to allow with names taken away.
func TestDenyByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Deny: []string{"evil.com", "*.evil.com"}})
	w.name("evil.com", "203.0.113.66")
	for what, c := range map[string]struct {
		send, reason string
	}{
		"another name":   {hello(sni("good.com")), ""},
		"the name":       {hello(sni("EVIL.com")), "rules"},
		"a name below":   {hello(sni("x.evil.com")), "rules"},
		"a hidden name":  {hello(sni("good.com"), extension(extECH, "\x00")), "encrypted"},
		"the name, HTTP": {get + "Host: evil.com\r\n\r\n", "rules"},
		"then the name":  {get + "Host: good.com\r\n\r\n" + get + "Host: evil.com\r\n\r\n", "rules"},
	} {
		conn := w.connect(boxA, "203.0.113.66:443")
		fmt.Fprint(conn, c.send)
		if c.reason == "" {
			_ = conn.CloseWrite()
		}
		b, _ := io.ReadAll(conn)
		if done := strings.Contains(string(b), "done"); done != (c.reason == "") {
			t.Errorf("%s: %q", what, b)
		}
		if c.reason != "" {
			w.line("box-a", deniedFor(c.reason))
		}
	}
	if m := w.ask(boxA, "evil.com", 1); len(m.Answer) != 0 {
		t.Errorf("a denied name resolves: %v", m)
	}
}

// TestPinsAreOfOneSandbox asks in one sandbox and connects in another.
func TestPinsAreOfOneSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"*.example:5432"}})
	w.name("db.example", "203.0.113.40")
	w.ask(boxB, "db.example", 1)
	c := w.connect(boxA, "203.0.113.40:5432")
	fmt.Fprint(c, "\x00\x00\x00\x08")
	_, _ = io.ReadAll(c)
	w.line("box-a", deniedFor("rules"))
	if w.s.NameOf(boxA, netip.MustParseAddr("203.0.113.40")) != "" || w.s.NameOf(boxB, netip.MustParseAddr("203.0.113.40")) != "db.example" {
		t.Error("the pin is in the wrong sandbox")
	}
	// The address changes hands: the next sandbox has none of its pins.
	w.setRules(boxB, "box-c", api.NetworkRules{Allow: []string{"*.example:5432"}})
	c = w.connect(boxB, "203.0.113.40:5432")
	fmt.Fprint(c, "\x00\x00\x00\x08")
	_, _ = io.ReadAll(c)
	w.line("box-c", deniedFor("rules"))
}

// open makes a connection and waits until it is through.
func (w *world) open(from netip.Addr, to, send string) *net.TCPConn {
	w.t.Helper()
	c := w.connect(from, to)
	fmt.Fprint(c, send)
	for end := time.Now().Add(patience); !strings.Contains(w.everything(), send); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%q did not arrive", send)
		}
	}
	return c
}

func TestRecheck(t *testing.T) {
	t.Parallel()
	all := api.NetworkRules{Allow: []string{"packages.example.com", "good.example", "*.example:5432", "203.0.113.64/28"}}
	w := newWorld(t, all)
	w.name("packages.example.com", "203.0.113.20")
	w.name("good.example", "203.0.113.30")
	w.name("db.example", "203.0.113.40")
	w.ask(boxA, "db.example", 1)
	toPypi := w.open(boxA, "203.0.113.20:443", hello(sni("packages.example.com")))
	toGood := w.open(boxA, "203.0.113.30:80", get+"Host: good.example\r\nX: 1\r\n\r\n")
	toDB := w.open(boxA, "203.0.113.40:5432", "\x00database")
	toRange := w.open(boxA, "203.0.113.66:7000", "bytes")
	other := w.open(boxB, "203.0.113.20:443", hello(sni("packages.example.com")))

	w.setRules(boxA, "box-a", api.NetworkRules{Allow: []string{"good.example"}})
	w.s.Recheck(boxA)
	for what, c := range map[string]net.Conn{"name": toPypi, "port": toDB, "range": toRange} {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the connection by %s was not cut: %v", what, err)
		}
	}
	line := w.line("box-a", func(c api.Connection) bool { return c.Name == "packages.example.com" })
	if line.Verdict != api.VerdictAllowed || line.Reason != "the rules changed" || line.Sent == 0 {
		t.Errorf("the line is %+v", line)
	}
	for _, c := range []*net.TCPConn{toGood, other} {
		_ = c.CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "done" {
			t.Errorf("a connection that is allowed: %q, %v", b, err)
		}
	}
	// What was resolved under the old rules is forgotten.
	w.setRules(boxA, "box-a", all)
	w.s.Recheck(boxA)
	c := w.connect(boxA, "203.0.113.40:5432")
	fmt.Fprint(c, "\x00again")
	_, _ = io.ReadAll(c)
	w.line("box-a", deniedFor("rules"))
}

// TestRulesChangeBetweenRequests is about a connection that Recheck was not told of.
func TestRulesChangeBetweenRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	c := w.open(boxA, "203.0.113.20:80", get+"Host: packages.example.com\r\n\r\n")
	w.setRules(boxA, "box-a", api.NetworkRules{Allow: []string{"good.example"}})
	fmt.Fprint(c, get+"Host: packages.example.com\r\nSecond: 1\r\n\r\n")
	_, _ = io.ReadAll(c)
	w.line("box-a", deniedFor("rules"))
	if strings.Contains(w.everything(), "Second") {
		t.Error("the second request arrived")
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	c := w.open(boxA, "203.0.113.20:443", hello(sni("packages.example.com")))
	silent := w.connect(boxA, "203.0.113.20:443")
	w.mu.Lock()
	delete(w.peers, boxA)
	w.mu.Unlock()
	w.s.Forget(boxA)
	for _, c := range []net.Conn{c, silent, w.connect(boxA, "203.0.113.20:443")} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it was not cut")
		}
	}
	if _, err := w.query("tcp", boxA, question("packages.example.com", 1)); err == nil {
		t.Error("the resolver answers a sandbox that is gone")
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if len(w.s.guests) != 0 {
		t.Errorf("%d sandboxes are remembered", len(w.s.guests))
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"packages.example.com", "gone.example"}})
	w.name("packages.example.com", "203.0.113.20")
	w.s.cfg.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		l.Close()
		return new(net.Dialer).DialContext(ctx, "tcp4", l.Addr().String())
	}
	for send, reason := range map[string]string{
		hello(sni("packages.example.com")): "the connection was refused",
		hello(sni("gone.example")):         "no address",
	} {
		c := w.connect(boxA, "203.0.113.20:443")
		fmt.Fprint(c, send)
		_, _ = io.ReadAll(c)
		w.line("box-a", func(c api.Connection) bool { return strings.Contains(c.Reason, reason) })
	}
}

// TestTooMany fills a sandbox's share of connections; another sandbox has its own.
func TestTooMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.NetworkRules{Allow: []string{"203.0.113.0/24"}})
	g := w.s.guest(boxA, "box-a")
	fillers := make([]*flow, maxFlows)
	for i := range fillers {
		fillers[i] = &flow{}
		if !g.add(fillers[i], &w.s.flows) {
			t.Fatalf("%d are too many", i)
		}
	}
	c := w.connect(boxA, "203.0.113.5:80")
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it was served")
	}
	w.line("box-a", deniedFor("too many"))
	for _, f := range fillers {
		g.remove(f, &w.s.flows)
	}
	for _, box := range []netip.Addr{boxA, boxB} {
		c := w.connect(box, "203.0.113.5:80")
		_ = c.CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "done" {
			t.Errorf("%s: %q, %v", box, b, err)
		}
	}
}

// TestManyAtOnce runs connections of both sandboxes through changes of rules.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	rules := api.NetworkRules{Allow: []string{"packages.example.com", "203.0.113.64/28"}}
	w := newWorld(t, rules)
	w.name("packages.example.com", "203.0.113.20")
	stop := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				w.setRules(boxB, "box-b", rules)
				w.s.Recheck(boxB)
			}
		}
	})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			box, to, send := boxA, "203.0.113.20:443", hello(sni("packages.example.com"))
			if i%2 == 0 {
				box, to, send = boxB, "203.0.113.66:80", "x"
			}
			for range 5 {
				c := w.connect(box, to)
				fmt.Fprint(c, send)
				_ = c.CloseWrite()
				if b, err := io.ReadAll(c); err != nil || string(b) != "done" {
					t.Errorf("%q, %v", b, err)
				}
				c.Close()
			}
		})
	}
	all.Wait()
	close(stop)
	changes.Wait()
}

// BenchmarkRelay moves bytes through the proxy under a rule by name.
func BenchmarkRelay(b *testing.B) {
	w := newWorld(b, api.NetworkRules{Allow: []string{"packages.example.com"}})
	w.name("packages.example.com", "203.0.113.20")
	w.serveAt("203.0.113.20:443", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	c := w.connect(boxA, "203.0.113.20:443")
	fmt.Fprint(c, hello(sni("packages.example.com")))
	c.SetDeadline(time.Time{})
	buf := make([]byte, 256<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
}
