package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
)

// serve starts a server that answers as the API documents, and a client of it.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{BaseURL: s.URL, APIKey: "pds_test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func wantCode(t *testing.T, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v, want code %s", err, code)
	}
	return e
}

func TestEnvelopeIsTheError(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer pds_test" {
			t.Errorf("Authorization is %q", got)
		}
		w.Header().Set("X-Request-Id", "req_1")
		answer(w, 404, api.Envelope{Error: api.Errorf(api.CodeSandboxNotFound, "no sandbox x")})
	})
	_, err := c.Sandboxes.Get(t.Context(), "x")
	e := wantCode(t, err, api.CodeSandboxNotFound)
	if e.RequestID != "req_1" || e.Hint == "" || e.Message != "no sandbox x" {
		t.Errorf("got %+v", e)
	}
	if !client.IsNotFound(err) {
		t.Error("IsNotFound is false")
	}
}

func TestOtherServersAreNotOurs(t *testing.T) {
	t.Parallel()
	html := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			fmt.Fprint(w, "<html>hello</html>")
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"page": html(200), "missing page": html(404), "gateway": html(502),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/", http.StatusFound)
		},
		"other JSON":  func(w http.ResponseWriter, _ *http.Request) { answer(w, 400, map[string]string{"detail": "no"}) },
		"wrong types": func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, []int{1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, h)
			_, err := c.Me(t.Context())
			wantCode(t, err, api.CodeNotAServer)
			_, err = c.Sandboxes.Create(t.Context(), api.CreateSandbox{})
			wantCode(t, err, api.CodeNotAServer)
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, err := client.New(client.Options{BaseURL: "http://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Me(t.Context())
	e := wantCode(t, err, api.CodeServerUnreachable)
	if !strings.Contains(e.Message, "connection refused") || !strings.Contains(e.Message, addr) {
		t.Errorf("message is %q", e.Message)
	}
	wantCode(t, c.Sandboxes.Handle("x").Command(t.Context(), "true").Run(), api.CodeServerUnreachable)
}

func TestBadAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"localhost:8080", "ftp://x", "http://", "://", "http://u:p@h", "http://h?x=1"} {
		_, err := client.New(client.Options{BaseURL: addr})
		if e := wantCode(t, err, api.CodeInvalidRequest); strings.Contains(e.Message, "p@") {
			t.Errorf("message has the password: %s", e.Message)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	t.Parallel()
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for _, id := range []string{"", ".", ".."} {
		wantCode(t, c.Sandboxes.Delete(t.Context(), id), api.CodeInvalidRequest)
	}
}

func TestPathsAreEscaped(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/templates/a%2F..%2Fb%3Fc" {
			t.Errorf("path is %s", r.URL.EscapedPath())
		}
		answer(w, 200, api.Template{})
	})
	if _, err := c.Templates.Get(t.Context(), "a/../b?c"); err != nil {
		t.Fatal(err)
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	busy := api.Envelope{Error: api.Errorf(api.CodeCapacity, "full")}
	for name, tc := range map[string]struct {
		call  func(*client.Client) error
		body  any
		stat  int
		tries int32
	}{
		"get, busy": {func(c *client.Client) error { _, err := c.Me(t.Context()); return err }, busy, 503, 3},
		"create, busy": {func(c *client.Client) error {
			_, err := c.Sandboxes.Create(t.Context(), api.CreateSandbox{})
			return err
		}, busy, 503, 3},
		"post, busy": {func(c *client.Client) error {
			_, err := c.Sandboxes.Handle(api.NewID()).Fork(t.Context(), api.Fork{})
			return err
		}, busy, 503, 1},
		"get, refused":  {func(c *client.Client) error { _, err := c.Me(t.Context()); return err }, api.Envelope{Error: api.Errorf(api.CodeForbidden, "no")}, 403, 1},
		"get, internal": {func(c *client.Client) error { _, err := c.Me(t.Context()); return err }, api.Envelope{Error: api.Errorf(api.CodeInternal, "no")}, 500, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				n.Add(1)
				answer(w, tc.stat, tc.body)
			})
			if tc.call(c) == nil || n.Load() != tc.tries {
				t.Errorf("%d tries, want %d", n.Load(), tc.tries)
			}
		})
	}
	t.Run("then it works", func(t *testing.T) {
		t.Parallel()
		var n atomic.Int32
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) < 3 {
				panic(http.ErrAbortHandler) // cuts the connection
			}
			answer(w, 200, api.Me{Org: "o"})
		})
		if me, err := c.Me(t.Context()); err != nil || me.Org != "o" {
			t.Errorf("%+v, %v", me, err)
		}
	})
}

// A create is repeated with its key, and another create has another.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		answer(w, 201, api.Sandbox{ID: api.NewID()})
	})
	for range 2 {
		if _, err := c.Sandboxes.Create(t.Context(), api.CreateSandbox{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] == keys[2] {
		t.Errorf("keys %q", keys)
	}
}

func TestContextEndsCalls(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Me(ctx)
	wantCode(t, err, api.CodeCanceled)
	if !errors.Is(err, context.Canceled) {
		t.Error("not context.Canceled")
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("metadata.a") != "b=c" || q.Get("status") != "running,paused" || q.Get("limit") != "2" {
			t.Errorf("query is %v", q)
		}
		if q.Get("page") == "" {
			answer(w, 200, api.SandboxList{Sandboxes: []api.Sandbox{{ID: "1"}, {ID: "2"}}, NextPage: "p2"})
			return
		}
		answer(w, 200, api.SandboxList{Sandboxes: []api.Sandbox{{ID: "3"}}})
	})
	var ids []string
	for sb, err := range c.Sandboxes.List(t.Context(), client.ListOptions{
		Metadata: map[string]string{"a": "b=c"}, Status: []api.Status{api.StatusRunning, api.StatusPaused}, PageSize: 2,
	}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sb.ID)
	}
	if got := strings.Join(ids, ""); got != "123" {
		t.Errorf("got %s", got)
	}
}

func TestReadyTellsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 503, api.Health{Status: "starting", Detail: "building base"})
	})
	h, err := c.Ready(t.Context())
	if err != nil || h.Detail != "building base" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(`{"apiUrl":"http://file","token":"pds_file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	for name, tc := range map[string]struct {
		env       map[string]string
		base, key string
	}{
		"file":                {nil, "http://file", "pds_file"},
		"token":               {map[string]string{"PANDASTACK_TOKEN": "t"}, "http://file", "t"},
		"key before token":    {map[string]string{"PANDASTACK_TOKEN": "t", "PANDASTACK_API_KEY": "k"}, "http://file", "k"},
		"address before file": {map[string]string{"PANDASTACK_API": "http://env"}, "http://env", "pds_file"},
	} {
		o, err := client.Discover(env(tc.env), file)
		if err != nil || o.BaseURL != tc.base || o.APIKey != tc.key {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if o, err := client.Discover(env(nil), file+".none"); err != nil || o != (client.Options{}) {
		t.Errorf("no file: %+v, %v", o, err)
	}
	if err := os.WriteFile(file, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := client.Discover(env(nil), file)
	wantCode(t, err, api.CodeInvalidRequest)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("path") != "/a b" || r.URL.Query().Get("user") != "root" {
			t.Errorf("query is %s", r.URL.RawQuery)
		}
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			if string(body) != "\x00\xff" {
				t.Errorf("body is %q", body)
			}
			w.WriteHeader(204)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "short")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	f := c.Sandboxes.Handle("x").As("root")
	if err := f.WriteFile(t.Context(), "/a b", []byte("\x00\xff")); err != nil {
		t.Error(err)
	}
	w := f.Create(t.Context(), "/a b")
	if _, err := w.Write([]byte("\x00\xff")); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	data, err := f.ReadFile(t.Context(), "/a b")
	wantCode(t, err, api.CodeServerUnreachable)
	if string(data) != "short" {
		t.Errorf("data is %q", data)
	}
}

func TestAPageIsNoFile(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusPartialContent)
		}
		fmt.Fprint(w, "<html>sign in")
	})
	f := c.Sandboxes.Handle("x")
	_, err := f.Open(t.Context(), "/a")
	wantCode(t, err, api.CodeNotAServer)
	_, err = f.OpenRange(t.Context(), "/a", 1, 2)
	wantCode(t, err, api.CodeNotAServer)
	_, err = f.Archive(t.Context(), "/a")
	wantCode(t, err, api.CodeNotAServer)
	data, err := f.ReadFile(t.Context(), "/a")
	wantCode(t, err, api.CodeNotAServer)
	if data != nil {
		t.Errorf("the file is %q", data)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": keep-alive\n\nevent: ev\nid: 7\ndata: {\"id\":7,\"type\":\"sandbox.running\"}\n\n"+
			"event: error\ndata: {\"code\":\"sandbox.died\",\"message\":\"gone\"}\n\n")
	})
	var got []string
	var last error
	for ev, err := range c.Sandboxes.Handle("x").Events(t.Context(), client.EventOptions{Follow: true}) {
		if last = err; err == nil {
			got = append(got, fmt.Sprint(ev.ID, ev.Type))
		}
	}
	if len(got) != 1 || got[0] != "7sandbox.running" {
		t.Errorf("got %v", got)
	}
	wantCode(t, last, api.CodeSandboxDied)
}
