package hosttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
)

var dialChecks = []check{
	{"DialCarriesLargeDataBothWays", dialCarriesLargeDataBothWays},
	{"DialManyAtOnce", dialManyAtOnce},
	{"DialOutlivesItsContext", dialOutlivesItsContext},
	{"DialToAClosedPort", dialToAClosedPort},
	{"DialToABadPort", dialToABadPort},
	{"DialEndsWithTheSandbox", dialEndsWithTheSandbox},
}

// inside is the daemon of one sandbox, spoken to through Dial.
type inside struct {
	http  *http.Client
	token string
}

func (s *suite) guest(t *testing.T, spec host.Spec) *inside {
	t.Helper()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.host.Dial(ctx, spec.ID, api.InternalPort)
		},
		DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &inside{&http.Client{Transport: transport}, spec.Token}
}

// do sends a request to the daemon and gives status and body.
func (g *inside) do(t *testing.T, method, path, token string, body io.Reader) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(deadline(t), method, "http://sandbox"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("X-Access-Token", token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, text
}

func (g *inside) wantHealthy(t *testing.T) {
	t.Helper()
	if status, _ := g.do(t, http.MethodGet, "/health", "", nil); status != http.StatusNoContent {
		t.Errorf("/health answers %d", status)
	}
}

func (g *inside) wantTokenNeeded(t *testing.T) {
	t.Helper()
	for _, token := range []string{"", "wrong"} {
		if status, _ := g.do(t, http.MethodGet, "/envs", token, nil); status != http.StatusUnauthorized {
			t.Errorf("/envs with the token %q answers %d", token, status)
		}
	}
}

func (g *inside) environment(t *testing.T) map[string]string {
	t.Helper()
	status, text := g.do(t, http.MethodGet, "/envs", g.token, nil)
	env := map[string]string{}
	if err := json.Unmarshal(text, &env); status != http.StatusOK || err != nil {
		t.Fatalf("/envs answers %d, %v: %.200s", status, err, text)
	}
	return env
}

func fileTarget(path string) string { return "/files?" + url.Values{"path": {path}}.Encode() }

// write gives a file in the sandbox a content.
func (g *inside) write(t *testing.T, path, content string) {
	t.Helper()
	if status, text := g.do(t, http.MethodPost, fileTarget(path), g.token, strings.NewReader(content)); status != http.StatusOK {
		t.Fatalf("writing %s answers %d: %.200s", path, status, text)
	}
}

// wantFile asserts the content of a file in the sandbox; empty is for none.
func (g *inside) wantFile(t *testing.T, path, want string) {
	t.Helper()
	status, text := g.do(t, http.MethodGet, fileTarget(path), g.token, nil)
	if status == http.StatusNotFound && want == "" {
		return
	}
	if status != http.StatusOK || string(text) != want {
		t.Errorf("reading %s answers %d: %.100q, want %q", path, status, text, want)
	}
}

func (g *inside) wantRoundTrip(t *testing.T, path string, size int) {
	t.Helper()
	data := make([]byte, size)
	rand.Read(data)
	target := fileTarget(path)
	if status, text := g.do(t, http.MethodPost, target, g.token, bytes.NewReader(data)); status != http.StatusOK {
		t.Fatalf("upload answers %d: %.200s", status, text)
	}
	status, got := g.do(t, http.MethodGet, target, g.token, nil)
	if status != http.StatusOK || !bytes.Equal(got, data) {
		t.Errorf("download answers %d with %d bytes, the same: %v", status, len(got), bytes.Equal(got, data))
	}
}

func dialCarriesLargeDataBothWays(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	s.guest(t, spec).wantRoundTrip(t, "/tmp/large", 24<<20)
}

func dialManyAtOnce(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	var wg sync.WaitGroup
	for i := range 8 {
		g := s.guest(t, spec) // a connection of its own
		wg.Go(func() { g.wantRoundTrip(t, "/tmp/many-"+strconv.Itoa(i), 1<<20) })
	}
	wg.Wait()
}

func dialOutlivesItsContext(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := s.host.Dial(ctx, spec.ID, api.InternalPort)
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(text, []byte(" 204 ")) {
		t.Errorf("%v: %.200q", err, text)
	}
}

func dialToAClosedPort(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	conn, err := s.host.Dial(deadline(t), spec.ID, 9)
	if err == nil {
		conn.Close()
		t.Fatal("nothing listens there, and Dial says it connected")
	}
	if code := api.CodeOf(err); code == api.CodeInternal || code == api.CodeTimeout {
		t.Errorf("a refused connection is not the host's fault and is known at once: %v", err)
	}
	s.guest(t, spec).wantHealthy(t)
}

func dialToABadPort(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	for _, port := range []int{0, -1, 65536, 1 << 40} {
		_, err := s.host.Dial(deadline(t), spec.ID, port)
		wantCode(t, "Dial to port "+strconv.Itoa(port), err, api.CodeInvalidRequest)
	}
}

func dialEndsWithTheSandbox(t *testing.T, s *suite) {
	spec := s.spec()
	s.create(t, spec)
	ctx := deadline(t)
	conn, err := s.host.Dial(ctx, spec.ID, api.InternalPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := s.host.Delete(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	// The kernel gives up a peer that is gone only when there is something to
	// send to it.
	end := time.Now().Add(patience)
	_ = conn.SetDeadline(end)
	for time.Now().Before(end) {
		if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := conn.Read(make([]byte, 512))
		if ne, ok := err.(net.Error); err != nil && !(ok && ne.Timeout()) {
			return
		}
	}
	t.Error("a connection goes on after its sandbox was deleted")
}
