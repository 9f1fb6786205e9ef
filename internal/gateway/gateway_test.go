package gateway

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// mirror answers with how the request came in.
func mirror(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "X-Hop")
	w.Header().Set("X-Hop", "1")
	w.Header().Set("X-Kept", "1")
	_ = json.NewEncoder(w).Encode(map[string]any{"host": r.Host, "uri": r.RequestURI, "header": r.Header, "proto": r.Proto})
}

type mirrored struct {
	Host, URI, Proto string
	Header           http.Header
}

func reflected(t *testing.T, body string) (m mirrored) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err, body)
	}
	return m
}

func TestForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	resp, body := w.get("/a%2Fb//c?x=1;y&z=%zz",
		"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Host", "evil", "X-Forwarded-Proto", "https", "Forwarded", "for=6.6.6.6",
		"Connection", "X-Mine", "X-Mine", "1", "X-Theirs", "2", "Cookie", "a=1; ps_preview=t", tokenHeader, "t", "Te", "trailers")
	m := reflected(t, body)
	if m.URI != "/a%2Fb//c?x=1;y&z=%zz" || m.Host != w.host(w.port) || m.Proto != "HTTP/1.1" {
		t.Errorf("%+v", m)
	}
	for name, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": w.host(w.port), "X-Forwarded-Proto": "http", "Forwarded": "", "X-Mine": "", "X-Theirs": "2",
		"Cookie": "a=1", tokenHeader: "", "Accept-Encoding": "", "User-Agent": "Go-http-client/1.1", "Te": "trailers",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if resp.Header.Get("X-Hop") != "" || resp.Header.Get("X-Kept") != "1" {
		t.Errorf("%v", resp.Header)
	}
}

func TestTrustedProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror), netip.MustParsePrefix("127.0.0.0/8"))
	_, body := w.get("/", "X-Forwarded-For", "203.0.113.7", "X-Forwarded-Host", "www.example.com", "X-Forwarded-Proto", "https")
	m := reflected(t, body)
	for name, want := range map[string]string{
		"X-Forwarded-For": "203.0.113.7, 127.0.0.1", "X-Forwarded-Host": "www.example.com", "X-Forwarded-Proto": "https",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	w.boxes.set(func(b *boxes) { b.visibility = api.PreviewPrivate })
	const html = "text/html,*/*"
	token := w.signer.Token(someID, w.port, time.Now().Add(time.Minute))
	old := w.signer.Token(someID, w.port, time.Now().Add(-time.Second))
	other := w.signer.Token(someID, w.port+1, time.Now().Add(time.Minute))
	for what, headers := range map[string][]string{
		"none": nil, "header": {tokenHeader, other}, "old": {tokenHeader, old}, "cookie": {"Cookie", tokenCookie + "=" + other}, "garbage": {tokenHeader, "x"},
	} {
		if resp, body := w.get("/", headers...); resp.StatusCode != 401 || failure(t, body).Code != api.CodeInvalidToken {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
	if w.boxes.wakes != 0 {
		t.Error("who may not come in has woken it")
	}
	for what, headers := range map[string][]string{
		"header": {tokenHeader, token}, "cookie": {"Cookie", tokenCookie + "=" + token}, "cookies": {"Cookie", tokenCookie + "=x; " + tokenCookie + "=" + token},
	} {
		resp, body := w.get("/", headers...)
		if resp.StatusCode != 200 || strings.Contains(body, token) {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
	// A program passes with a signed URL; a browser is sent on with a cookie.
	if resp, body := w.get("/p?a=b&ps_token=" + token); resp.StatusCode != 200 || reflected(t, body).URI != "/p?a=b" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	resp, _ := w.get("/p?a=b&ps_token="+token, "Accept", html)
	if resp.StatusCode != 302 || resp.Header.Get("Location") != "/p?a=b" || len(resp.Cookies()) != 1 || resp.Cookies()[0].Secure {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp, body := w.get("/p?a=b", "Accept", html, "Cookie", tokenCookie+"="+resp.Cookies()[0].Value); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := w.get("/p?ps_token="+old, "Accept", html); resp.StatusCode != 401 || !strings.Contains(body, "<h1>This preview is private</h1>") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	w.boxes.set(func(b *boxes) { b.visibility = api.PreviewClosed })
	if resp, body := w.get("/", tokenHeader, token); resp.StatusCode != 403 || failure(t, body).Code != api.CodeForbidden {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// What a page of another preview asks for is refused although the browser sends
// the cookie along; the token of a URL is nobody's but who has it.
func TestSiblings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror), netip.MustParsePrefix("127.0.0.0/8"))
	w.boxes.set(func(b *boxes) { b.visibility = api.PreviewPrivate })
	token := w.signer.Token(someID, w.port, time.Now().Add(time.Minute))
	cookie, sibling := []string{"Cookie", tokenCookie + "=" + token}, "http://"+w.host(w.port+1)
	for what, headers := range map[string][]string{
		"a WebSocket": {"Origin", sibling, "Connection", "Upgrade", "Upgrade", "websocket"},
		"a fetch":     {"Origin", sibling, "Sec-Fetch-Site", "same-site"},
		"a script":    {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"},
	} {
		if resp, body := w.get("/", append(headers, cookie...)...); resp.StatusCode != 401 || failure(t, body).Code != api.CodeInvalidToken {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
		if resp, body := w.get("/?ps_token="+token, headers[:2]...); resp.StatusCode != 200 {
			t.Errorf("%s with a token of its own: %d %s", what, resp.StatusCode, body)
		}
	}
	if w.boxes.wakes != 3 {
		t.Errorf("%d wakes", w.boxes.wakes)
	}
	for _, origin := range []string{"http://" + w.host(w.port), "https://www.example.com"} {
		if resp, body := w.get("/", append(cookie, "Origin", origin, "X-Forwarded-Host", "www.example.com")...); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", origin, resp.StatusCode, body)
		}
	}
}

// A token stays in no address: neither where none was needed, nor where an older
// cookie would have done, which the newer token replaces.
func TestTokenLeavesTheAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	older, newer := w.signer.Token(someID, w.port, time.Now().Add(time.Minute)), w.signer.Token(someID, w.port, time.Now().Add(time.Hour))
	sent := func(cookies int, token string, headers ...string) {
		t.Helper()
		resp, _ := w.get("/p?a=b&ps_token="+token, append(headers, "Accept", "text/html")...)
		if resp.StatusCode != 302 || resp.Header.Get("Location") != "/p?a=b" || len(resp.Cookies()) != cookies {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		if cookies == 1 && resp.Cookies()[0].Value != token {
			t.Error("the cookie is another token")
		}
	}
	sent(0, newer)
	sent(0, "x")
	resp, body := w.get("/s.css?ps_token="+newer, "Referer", "http://"+w.host(w.port)+"/p?ps_token="+newer+"&a=b")
	if resp.StatusCode != 200 || strings.Contains(body, newer) || reflected(t, body).Header.Get("Referer") != "http://"+w.host(w.port)+"/p?a=b" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	w.boxes.set(func(b *boxes) { b.visibility = api.PreviewPrivate })
	sent(1, newer, "Cookie", tokenCookie+"="+older)
	sent(0, "x", "Cookie", tokenCookie+"="+older)
}

// failure reads the envelope of a refusal.
func failure(t *testing.T, body string) *api.Error {
	t.Helper()
	var env api.Envelope
	if err := json.Unmarshal([]byte(body), &env); err != nil || env.Error == nil || env.Error.RequestID != "req_1" || env.Error.Details["retryable"] == nil {
		t.Fatalf("%v: %s", err, body)
	}
	return env.Error
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if r.URL.Path == "/garbage" {
			_, _ = conn.Write([]byte("\x00\x01\x02\r\n\r\n"))
		}
		conn.Close()
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	stranger := strings.Replace(someID, "k", "l", 1)
	for _, c := range []struct {
		target string
		awake  error
		status int
		code   api.Code
		title  string
	}{
		{"http://" + label(stranger, 80) + ".localhost/", nil, 404, api.CodeSandboxNotFound, "There is no such sandbox"},
		{"http://" + w.host(closed) + "/", nil, 502, api.CodePreviewUnreachable, "Nothing answers on port"},
		{"/", nil, 502, api.CodePreviewUnreachable, "Nothing answers on port"},
		{"/garbage", nil, 502, api.CodePreviewUnreachable, "Nothing answers on port"},
		{"http://" + w.host(api.InternalPort) + "/", nil, 403, api.CodeForbidden, "cannot be shown"},
		{"http://garbage.localhost/", nil, 400, api.CodeInvalidRequest, "cannot be shown"},
		{"http://xn--bcher-kva.localhost/", nil, 400, api.CodeInvalidRequest, "cannot be shown"},
		{"http://elsewhere.example/", nil, 400, api.CodeInvalidRequest, "cannot be shown"},
		{"/", api.Errorf(api.CodeSandboxState, "it is creating").With("status", "creating"), 503, api.CodeSandboxState, "The sandbox is starting"},
		{"/", api.Errorf(api.CodeSandboxState, "it is paused").With("status", "paused"), 503, api.CodeSandboxState, "cannot be woken now"},
		{"/", api.Errorf(api.CodeSnapshotMismatch, "another CPU"), 503, api.CodeSnapshotMismatch, "cannot be woken now"},
		{"/", api.Errorf(api.CodeCapacity, "no room"), 503, api.CodeCapacity, "cannot be woken now"},
		{"/", api.Errorf(api.CodeSandboxDied, "it died"), 502, api.CodeSandboxDied, "The sandbox has ended"},
		{"/", api.Errorf(api.CodeSandboxNotFound, "just deleted"), 404, api.CodeSandboxNotFound, "There is no such sandbox"},
	} {
		w.boxes.set(func(b *boxes) { b.awake = c.awake })
		resp, body := w.get(c.target)
		if e := failure(t, body); resp.StatusCode != c.status || e.Code != c.code || resp.Header.Get("X-Request-Id") != "req_1" {
			t.Errorf("%s %v: %d %s", c.target, c.awake, resp.StatusCode, body)
		}
		if late := resp.Header.Get("Retry-After") != ""; late != (c.status == 503) {
			t.Errorf("%s %v: Retry-After %q", c.target, c.awake, resp.Header.Get("Retry-After"))
		}
		resp, body = w.get(c.target, "Accept", "text/html")
		if resp.StatusCode != c.status || !strings.Contains(body, c.title) || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s %v: %d %s", c.target, c.awake, resp.StatusCode, body)
		}
	}
}

// A page shows what was asked for as text.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	w.boxes.set(func(b *boxes) { b.awake = api.Errorf(api.CodeCapacity, "<script>alert(1)</script>") })
	if _, body := w.get("/", "Accept", "text/html"); strings.Contains(body, "<script>") || !strings.Contains(body, "&lt;script&gt;") {
		t.Error(body)
	}
}

// Connections are kept for the next request, but not for another machine.
func TestEras(t *testing.T) {
	t.Parallel()
	w := newWorld(t, http.HandlerFunc(mirror))
	dials := func() (n int) { w.boxes.set(func(b *boxes) { n = b.dials }); return n }
	w.get("/")
	first := dials()
	if w.boxes.touches == 0 {
		t.Error("bytes moved, and nobody said so")
	}
	w.get("/")
	if first != 1 || dials() > 2 { // a slow machine may have dropped the idle one
		t.Errorf("%d and %d connections", first, dials())
	}
	before := dials()
	w.boxes.set(func(b *boxes) { b.era++ })
	if w.get("/"); dials() != before+1 {
		t.Error("a connection to the machine of before was used")
	}
}
