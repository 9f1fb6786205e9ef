//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

//go:embed testdata/preview_server.py
var previewServer string

// TestPreviewsTour runs the commands of docs/previews.md.
func TestPreviewsTour(t *testing.T) {
	t.Parallel()
	runTour(t, "../../docs/previews.md")
}

// visitor opens previews of one sandbox as the world does: by name and port,
// without a key.
type visitor struct {
	*testing.T
	sb   *client.Sandbox
	http *http.Client
}

func newVisitor(t *testing.T, s *server, sb *client.Sandbox) *visitor {
	addr := strings.TrimPrefix(s.addr, "http://")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr) // whatever a resolver makes of *.localhost
	}, MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{t, sb, &http.Client{Transport: transport, Timeout: 2 * time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// open sends a request to the preview of a port, or to a whole URL.
func (v *visitor) open(method string, port int, path string, body io.Reader, headers ...string) (*http.Response, error) {
	target := path
	if !strings.HasPrefix(path, "http") {
		target = fmt.Sprintf("http://%d-%s.localhost%s", port, v.sb.ID, path)
	}
	r, err := http.NewRequestWithContext(v.Context(), method, target, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return v.http.Do(r)
}

// get gives the status and the body of an answer.
func (v *visitor) get(port int, path string, headers ...string) (int, string) {
	v.Helper()
	resp, err := v.open("GET", port, path, nil, headers...)
	if err != nil {
		v.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		v.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// serve starts the server of this test in the sandbox and waits for its preview.
func (v *visitor) serve(address string, port int) {
	v.Helper()
	if err := v.sb.WriteFile(v.Context(), "/home/user/server.py", []byte(previewServer)); err != nil {
		v.Fatal(err)
	}
	background(v.T, v.sb, "server"+strconv.Itoa(port), fmt.Sprintf("exec python3 /home/user/server.py %s %d", address, port))
	if address == "127.0.0.1" {
		return
	}
	var text string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var status int
		if status, text = v.get(port, "/"); status == 200 {
			return
		}
	}
	v.Fatalf("port %d does not answer: %s", port, text)
}

// wants checks the envelope of a refusal.
func (v *visitor) wants(status int, code api.Code, port int, path string, headers ...string) {
	v.Helper()
	got, body := v.get(port, path, headers...)
	var env api.Envelope
	if err := json.Unmarshal([]byte(body), &env); err != nil || env.Error == nil || got != status || env.Error.Code != code {
		v.Errorf("%s: %d %s, want %d %s", path, got, body, status, code)
	}
}

func TestPreviewTraffic(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	v := newVisitor(t, s, create(t, s, api.CreateSandbox{}))
	v.wants(502, api.CodePreviewUnreachable, 8000, "/")
	v.serve("0.0.0.0", 8000)
	host := "8000-" + v.sb.ID + ".localhost"
	if status, body := v.get(8000, "/hello?x=1", "X-Forwarded-For", "6.6.6.6"); status != 200 || body != "/hello?x=1 "+host+" 127.0.0.1" {
		t.Errorf("%d %q", status, body)
	}
	v.events()
	v.webSocket()
	v.large()
	v.serve("127.0.0.1", 8002) // is the sandbox's own affair
	v.wants(502, api.CodePreviewUnreachable, 8002, "/")

	if _, err := v.sb.ExecWith(t.Context(), api.Exec{Cmd: client.Line("true")}); err != nil {
		t.Fatal(err)
	}
	if err := v.sb.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, body := v.get(8000, "/again"); status != 200 || !strings.HasPrefix(body, "/again ") {
		t.Errorf("after a sleep: %d %q", status, body)
	}
	checkpoint, err := v.sb.Checkpoint(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	v.get(8000, "/") // leaves a connection, which is of no use after this
	if err := v.sb.Restore(t.Context(), checkpoint.ID); err != nil {
		t.Fatal(err)
	}
	if resp, err := v.open("POST", 8000, "/", strings.NewReader("x")); err != nil || resp.StatusCode != 200 {
		t.Errorf("after a rollback: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
}

// events reads events one by one, each before the next is sent.
func (v *visitor) events() {
	v.Helper()
	resp, err := v.open("GET", 8000, "/events", nil)
	if err != nil {
		v.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			v.Fatalf("event %d: %q %v", i, line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			v.Fatal(err)
		}
		v.get(8000, "/next")
	}
}

func (v *visitor) webSocket() {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://8000-"+v.sb.ID+".localhost/ws", &websocket.DialOptions{HTTPClient: v.http})
	if err != nil {
		v.Fatal(err)
	}
	defer c.CloseNow()
	for _, size := range []int{1, 100, 60000} {
		text := strings.Repeat("x", size)
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			v.Fatal(err)
		}
		c.SetReadLimit(1 << 20)
		if _, data, err := c.Read(ctx); err != nil || string(data) != text {
			v.Fatalf("%d bytes of %d came back: %v", len(data), size, err)
		}
	}
}

// large carries 50 MB each way.
func (v *visitor) large() {
	v.Helper()
	const size = 50 << 20
	data := make([]byte, size)
	rand.Read(data)
	sum := sha256.Sum256(data)
	resp, err := v.open("POST", 8000, "/", strings.NewReader(string(data)))
	if err != nil {
		v.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != hex.EncodeToString(sum[:]) {
		v.Errorf("sent other bytes: %s %v", got, err)
	}
	down, err := v.open("GET", 8000, "/zeros/"+strconv.Itoa(size), nil)
	if err != nil {
		v.Fatal(err)
	}
	defer down.Body.Close()
	if n, err := io.Copy(io.Discard, down.Body); err != nil || n != size {
		v.Errorf("received %d bytes: %v", n, err)
	}
}

func TestPreviewAccess(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	v := newVisitor(t, s, create(t, s, api.CreateSandbox{}))
	ctx := t.Context()
	v.serve("::", 8000)
	if _, err := v.sb.ExposePort(ctx, 8000, api.PreviewPrivate); err != nil {
		t.Fatal(err)
	}
	v.wants(401, api.CodeInvalidToken, 8000, "/")
	if status, body := v.get(8000, "/", "Accept", "text/html"); status != 401 || !strings.Contains(body, "<!doctype html>") {
		t.Errorf("%d %s", status, body)
	}
	signed, err := v.sb.SignedPreviewURL(ctx, 8000, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := v.get(0, signed.URL); status != 200 || strings.Contains(body, signed.Token) {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := v.get(8000, "/", "X-PandaStack-Preview-Token", signed.Token); status != 200 {
		t.Errorf("the token as a header: %d", status)
	}
	if _, err := v.sb.ExposePort(ctx, 8001, api.PreviewPrivate); err != nil {
		t.Fatal(err)
	}
	v.wants(401, api.CodeInvalidToken, 8001, "/?ps_token="+signed.Token) // which is another port's
	resp, err := v.open("GET", 0, signed.URL, nil, "Accept", "text/html")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 302 || resp.Header.Get("Location") != "/" || len(resp.Cookies()) != 1 {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	if status, _ := v.get(8000, "/", "Cookie", "ps_preview="+resp.Cookies()[0].Value); status != 200 {
		t.Errorf("with the cookie: %d", status)
	}
	v.expiry()

	child, err := v.sb.Fork(ctx, api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Delete(context.Background()) })
	newVisitor(t, s, child).wants(401, api.CodeInvalidToken, 8000, "/?ps_token="+signed.Token) // as private as its parent's, and another's

	if err := v.sb.ClosePort(ctx, 8000); err != nil {
		t.Fatal(err)
	}
	v.wants(403, api.CodeForbidden, 8000, "/?ps_token="+signed.Token)
	for _, port := range []int{api.InternalPort, 49999} {
		if _, err := v.sb.ExposePort(ctx, port, api.PreviewPublic); api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("port %d: %v", port, err)
		}
		v.wants(403, api.CodeForbidden, port, "/")
	}
	v.wants(404, api.CodeSandboxNotFound, 0, "http://80-"+api.NewID()+".localhost/")
	for _, host := range []string{"garbage", "0-" + v.sb.ID, "70000-" + v.sb.ID, "xn--bcher-kva", "a.80-" + v.sb.ID, strings.Repeat("a", 300)} {
		v.wants(400, api.CodeInvalidRequest, 0, "http://"+host+".localhost/")
	}
}

// expiry opens a signed URL until it is refused.
func (v *visitor) expiry() {
	v.Helper()
	short, err := v.sb.SignedPreviewURL(v.Context(), 8000, 2*time.Second)
	if err != nil {
		v.Fatal(err)
	}
	worked := false
	for time.Now().Before(short.ExpiresAt.Add(time.Minute)) {
		before := time.Now()
		status, _ := v.get(0, short.URL)
		switch {
		case status == 200 && before.Before(short.ExpiresAt):
			worked = true
		case status == 401 && !time.Now().Before(short.ExpiresAt):
			if !worked && before.Before(short.ExpiresAt) {
				v.Error("the URL never worked")
			}
			return
		default:
			v.Fatalf("%d, sent %s before it expires", status, time.Until(short.ExpiresAt))
		}
		time.Sleep(50 * time.Millisecond)
	}
	v.Error("the URL does not expire")
}

// TestPreviewWake: a hundred requests at once to one that sleeps are all served
// after one wake.
func TestPreviewWake(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	v := newVisitor(t, s, create(t, s, api.CreateSandbox{}))
	v.serve("0.0.0.0", 8000)
	if err := v.sb.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			resp, err := v.open("GET", 8000, "/"+strconv.Itoa(i), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if data, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !strings.HasPrefix(string(data), fmt.Sprintf("/%d ", i)) {
				t.Errorf("%d: %d %s %v", i, resp.StatusCode, data, err)
			}
		})
	}
	wg.Wait()
	woken := 0
	for ev, err := range v.sb.Events(t.Context(), client.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "sandbox.woken" {
			woken++
		}
	}
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
}

// TestPortEvents: ports are listed with who listens, and who follows events hears
// of one that opens and closes, also after a sleep.
func TestPortEvents(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	v := newVisitor(t, s, create(t, s, api.CreateSandbox{}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	v.serve("0.0.0.0", 8000)
	events := make(chan api.Event, 100)
	go func() {
		defer close(events)
		for ev, err := range v.sb.Events(ctx, client.EventOptions{Follow: true}) {
			if err != nil {
				return
			}
			events <- ev
		}
	}()
	wait := func(kind, port string) {
		t.Helper()
		for ev := range events {
			if ev.Type == kind && ev.Data["port"] == port {
				return
			}
		}
		t.Fatalf("no %s of port %s", kind, port)
	}
	time.Sleep(2 * time.Second) // what is open when the watch begins is no news; it begins with the stream
	v.serve("::", 8001)
	wait("port.opened", "8001")
	ports, err := v.sb.Ports(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("[{8000 true python3 public http://8000-%s.localhost:%s/} {8001 true python3 public http://8001-%s.localhost:%s/}]",
		v.sb.ID, port(s), v.sb.ID, port(s))
	if got := fmt.Sprint(ports); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := v.sb.Hibernate(ctx); err != nil {
		t.Fatal(err)
	}
	if ports, err := v.sb.Ports(ctx); err != nil || len(ports) != 0 {
		t.Errorf("asleep: %v %v", ports, err)
	}
	sh(t, v.sb, "pkill -f '[s]erver.py :: 8001'")
	wait("port.closed", "8001")
}

// port is that of a server's address.
func port(s *server) string { return s.addr[strings.LastIndex(s.addr, ":")+1:] }
