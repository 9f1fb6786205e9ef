package gateway

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandastack/pandastack/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// boxes stands for the rules: one sandbox, whose ports are those of this machine.
type boxes struct {
	mu         sync.Mutex
	visibility api.Visibility
	awake      error
	era        uint64
	dials      int
	uses       int
	wakes      int
	touches    int
}

func (b *boxes) PortVisibility(_ context.Context, id string, port int) (api.Visibility, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case id != someID:
		return "", api.Errorf(api.CodeSandboxNotFound, "there is no sandbox %s", id)
	case port == api.InternalPort:
		return "", api.Errorf(api.CodeForbidden, "port %d of a sandbox is reserved", port)
	case b.visibility == "":
		return api.PreviewPublic, nil
	}
	return b.visibility, nil
}

func (b *boxes) Awake(context.Context, string) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakes++
	return b.era, b.awake
}

func (b *boxes) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	b.mu.Lock()
	b.dials++
	b.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return nil, api.Wrap(api.CodeSandboxState, err, "nothing in sandbox %s accepts connections on port %d", id, port).With("port", port)
	}
	return conn, nil
}

func (b *boxes) Use(string) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.uses--
	}
}

func (b *boxes) Touch(string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touches++
}

// set changes what the rules say.
func (b *boxes) set(change func(*boxes)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// world is a gateway on a real connection before a real server.
type world struct {
	*testing.T
	boxes *boxes
	*Gateway
	addr string // of the gateway
	port int    // of the server "inside"
	http *http.Transport
}

func newWorld(t *testing.T, inside http.Handler, trusted ...netip.Prefix) *world {
	t.Helper()
	w := &world{T: t, boxes: &boxes{era: 1}}
	w.Gateway = New(Config{
		Domain: "localhost", Sandboxes: w.boxes, Signer: newSigner(t, "secret"), Log: slog.New(slog.DiscardHandler),
		NewRequestID: func() string { return "req_1" }, TrustedProxies: trusted,
	})
	server, front := httptest.NewUnstartedServer(inside), httptest.NewUnstartedServer(w.Gateway)
	for _, s := range []*httptest.Server{server, front} {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	}
	w.addr, w.port = front.Listener.Addr().String(), server.Listener.Addr().(*net.TCPAddr).Port
	w.http = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", w.addr)
	}, DisableCompression: true}
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		front.CloseClientConnections()
		front.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.Wait(ctx); err != nil {
			t.Error("a request does not end")
		}
		w.Close()
		server.CloseClientConnections()
		server.Close()
		if w.boxes.uses != 0 {
			t.Errorf("%d uses did not end", w.boxes.uses)
		}
	})
	return w
}

// host is the name of the preview of a port.
func (w *world) host(port int) string { return label(someID, port) + ".localhost" }

// request makes one for the preview of the server, with headers in pairs.
func (w *world) request(method, target string, body io.Reader, headers ...string) *http.Request {
	w.Helper()
	if strings.HasPrefix(target, "/") {
		target = "http://" + w.host(w.port) + target
	}
	r, err := http.NewRequestWithContext(w.Context(), method, target, body)
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// do sends a request and gives the answer with its whole body.
func (w *world) do(r *http.Request) (*http.Response, string) {
	w.Helper()
	resp, err := w.http.RoundTrip(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp, string(data)
}

func (w *world) get(target string, headers ...string) (*http.Response, string) {
	w.Helper()
	return w.do(w.request("GET", target, nil, headers...))
}
