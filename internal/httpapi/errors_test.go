package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

const box = "/v1/sandboxes/k3v9x0q2m7c1b8n4t6zd"

// TestBadInput is what a client can send wrong at the level of HTTP and JSON.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code                     api.Code
		says                     string // part of the message
		headers                  []string
	}{
		{"unknown field", "POST", "/v1/sandboxes", `{"templat":"base"}`, 400, api.CodeUnknownField, `"templat"`, nil},
		{"unknown fields", "POST", "/v1/sandboxes", `{"zz":1,"aa":2,"ttl_seconds":-1}`, 400, api.CodeUnknownField, `"aa", "zz"`, nil},
		{"nested unknown field", "POST", "/v1/sandboxes", `{"volumes":[{"name":"v","rw":true}]}`, 400, api.CodeUnknownField, `"volumes[0].rw"`, nil},
		{"negative ttl", "POST", "/v1/sandboxes", `{"ttl_seconds":-5}`, 400, api.CodeInvalidRequest, "ttl_seconds: expected number >= 1", nil},
		{"ttl is text", "POST", "/v1/sandboxes", `{"ttl_seconds":"60"}`, 400, api.CodeInvalidRequest, "ttl_seconds: expected integer", nil},
		{"ttl is a fraction", "POST", "/v1/sandboxes", `{"ttl_seconds":1.5}`, 400, api.CodeInvalidRequest, "ttl_seconds: expected integer", nil},
		{"huge ttl", "POST", "/v1/sandboxes", `{"ttl_seconds":1e300}`, 400, api.CodeInvalidRequest, "ttl_seconds", nil},
		{"number beyond floats", "POST", "/v1/sandboxes", `{"cpu":1e999}`, 400, api.CodeInvalidRequest, "not valid JSON", nil},
		{"negative memory", "POST", "/v1/sandboxes", `{"memory_mb":-1}`, 400, api.CodeInvalidRequest, "memory_mb", nil},
		{"metadata of numbers", "POST", "/v1/sandboxes", `{"metadata":{"a":1}}`, 400, api.CodeInvalidRequest, "metadata.a: expected string", nil},
		{"metadata is a list", "POST", "/v1/sandboxes", `{"metadata":[]}`, 400, api.CodeInvalidRequest, "metadata: expected object", nil},
		{"bad JSON", "POST", "/v1/sandboxes", `{"template":`, 400, api.CodeInvalidRequest, "not valid JSON", nil},
		{"two values", "POST", "/v1/sandboxes", `{} {}`, 400, api.CodeInvalidRequest, "not valid JSON", nil},
		{"a list", "POST", "/v1/sandboxes", `[]`, 400, api.CodeInvalidRequest, "expected object", nil},
		{"null", "POST", "/v1/sandboxes", `null`, 400, api.CodeInvalidRequest, "expected object", nil},
		{"deep nesting", "POST", "/v1/sandboxes", deep, 400, api.CodeInvalidRequest, "not valid JSON", nil},
		{"wrong content type", "POST", "/v1/sandboxes", `a=b`, 400, api.CodeInvalidRequest, "application/json",
			[]string{"Content-Type", "application/xml"}},
		{"10 MB of metadata", "POST", "/v1/sandboxes", `{"metadata":{"a":"` + strings.Repeat("x", 10<<20) + `"}}`, 413, api.CodeTooLarge, "larger than 1048576 bytes", nil},
		{"no cmd", "POST", box + "/exec", `{}`, 400, api.CodeInvalidRequest, "cmd: is required", nil},
		{"empty exec", "POST", box + "/exec", ``, 400, api.CodeInvalidRequest, "body is required", nil},
		{"cmd is a number", "POST", box + "/exec", `{"cmd":7}`, 400, api.CodeInvalidRequest, "cmd: expected a string or a list of strings", nil},
		{"cmd is null", "POST", box + "/exec", `{"cmd":null}`, 400, api.CodeInvalidRequest, "cmd", nil},
		{"cmd of numbers", "POST", box + "/exec", `{"cmd":[1]}`, 400, api.CodeInvalidRequest, "cmd: expected a string or a list of strings", nil},
		{"empty cmd", "POST", box + "/exec", `{"cmd":""}`, 400, api.CodeInvalidRequest, "cmd", nil},
		{"empty list", "POST", box + "/exec", `{"cmd":[]}`, 400, api.CodeInvalidRequest, "cmd", nil},
		{"negative timeout", "POST", box + "/exec", `{"cmd":"true","timeout_seconds":-1}`, 400, api.CodeInvalidRequest, "timeout_seconds", nil},
		{"stream: unknown field", "POST", box + "/exec/stream", `{"cmd":"true","tty":true}`, 400, api.CodeUnknownField, `"tty"`, nil},
		{"negative idle", "PATCH", box + "/lifecycle", `{"idle_seconds":-1}`, 400, api.CodeInvalidRequest, "idle_seconds", nil},
		{"idle: unknown", "PATCH", box + "/lifecycle", `{"idle":{"timeout_seconds":5,"cpu":1}}`, 400, api.CodeUnknownField, `"idle.cpu"`, nil},
		{"negative keep", "POST", "/v1/sandboxes", `{"checkpoints":{"keep_last":-1}}`, 400, api.CodeInvalidRequest, "checkpoints.keep_last", nil},
		{"snapshot: unknown", "POST", box + "/snapshots", `{"nam":"x"}`, 400, api.CodeUnknownField, `"nam"`, nil},
		{"snapshot: long name", "POST", box + "/snapshots", `{"name":"` + strings.Repeat("x", 129) + `"}`, 400, api.CodeInvalidRequest, "name", nil},
		{"snapshot: a list", "POST", box + "/snapshots", `[]`, 400, api.CodeInvalidRequest, "expected object", nil},
		{"snapshots: bad kind", "GET", "/v1/snapshots?kind=image", ``, 400, api.CodeInvalidRequest, "kind", nil},
		{"snapshots: limit 0", "GET", box + "/snapshots?limit=0", ``, 400, api.CodeInvalidRequest, "limit", nil},
		{"snapshots: unknown query", "GET", "/v1/snapshots?sandbox=x", ``, 400, api.CodeUnknownField, `"sandbox"`, nil},
		{"import: long name", "POST", "/v1/snapshots/import?name=" + strings.Repeat("x", 129), `x`, 400, api.CodeInvalidRequest, "name", nil},
		{"snapshots have no put", "PUT", "/v1/snapshots/x", `{}`, 405, api.CodeMethodNotAllowed, "GET, DELETE", nil},
		{"fork: negative count", "POST", box + "/fork", `{"count":-1}`, 400, api.CodeInvalidRequest, "count", nil},
		{"fork: count is text", "POST", box + "/fork-tree", `{"count":"two"}`, 400, api.CodeInvalidRequest, "count: expected integer", nil},
		{"fork: unknown query", "POST", box + "/fork?hosts=2", ``, 400, api.CodeUnknownField, `"hosts"`, nil},
		{"restore: unknown", "POST", box + "/restore", `{"snapshot":"x"}`, 400, api.CodeUnknownField, `"snapshot"`, nil},
		{"lifecycle: unknown", "PATCH", box + "/lifecycle", `{"ttl":30}`, 400, api.CodeUnknownField, `"ttl"`, nil},
		{"token without name", "POST", "/v1/me/tokens", `{}`, 400, api.CodeInvalidRequest, "name: is required", []string{"Authorization", "Bearer " + adminKey}},
		{"limit 0", "GET", "/v1/sandboxes?limit=0", ``, 400, api.CodeInvalidRequest, "limit: expected number >= 1", nil},
		{"limit of letters", "GET", "/v1/sandboxes?limit=many", ``, 400, api.CodeInvalidRequest, "limit: invalid integer", nil},
		{"unknown state", "GET", "/v1/sandboxes?state=asleep", ``, 400, api.CodeInvalidRequest, "state", nil},
		{"unknown query", "GET", "/v1/sandboxes?limt=5", ``, 400, api.CodeUnknownField, `"limt"`, nil},
		{"unknown query elsewhere", "GET", box + "?verbose=1", ``, 400, api.CodeUnknownField, `"verbose"`, nil},
		{"bad label", "GET", "/v1/sandboxes?metadata=nocolon", ``, 400, api.CodeInvalidRequest, "metadata: expected key:value", nil},
		{"bad since", "GET", box + "/events?since=yesterday", ``, 400, api.CodeInvalidRequest, "since", nil},
		{"bad log stream", "GET", box + "/logs?stream=all", ``, 400, api.CodeInvalidRequest, "stream", nil},
		{"no path", "GET", box + "/fs", ``, 400, api.CodeInvalidRequest, "path: is required", nil},
		{"unknown path", "GET", "/v1/nothing", ``, 404, api.CodeNotFound, "/v1/nothing", nil},
		{"root", "GET", "/", ``, 404, api.CodeNotFound, "/", nil},
		{"wrong method", "PATCH", "/v1/sandboxes", `{}`, 405, api.CodeMethodNotAllowed, "GET, POST", nil},
		{"no key", "POST", "/v1/sandboxes", `{`, 401, api.CodeInvalidToken, "no API key", []string{"Authorization", ""}},
		{"bad key", "GET", "/v1/me", ``, 401, api.CodeInvalidToken, "not valid", []string{"Authorization", "Bearer pds_wrong"}},
		{"other scheme", "GET", "/v1/me", ``, 401, api.CodeInvalidToken, "not valid", []string{"Authorization", "Basic " + userKey}},
		{"not an admin", "POST", "/v1/me/tokens", `{"name":"x"}`, 403, api.CodeForbidden, "admin key", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := &bench{t, b.api, b.url, b.log}
			resp := b.do(tt.method, tt.path, tt.body, tt.headers...)
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
			}
			e := b.failure(resp, tt.code)
			if !strings.Contains(e.Message, tt.says) {
				t.Errorf("message %q does not say %q", e.Message, tt.says)
			}
			if e.Hint == "" {
				t.Error("no hint")
			}
			if len(e.Message) > 2000 {
				t.Errorf("message of %d bytes", len(e.Message))
			}
		})
	}
}

func TestErrorsOfControl(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial unix /var/lib/x: secret detail")
	for _, tt := range []struct {
		name   string
		err    error
		status int
		code   api.Code
		retry  float64 // retry_after_sec, 0 for none
	}{
		{"coded", api.Errorf(api.CodeSandboxNotFound, "there is no sandbox x"), 404, api.CodeSandboxNotFound, 0},
		{"wrapped", fmt.Errorf("get: %w", api.Errorf(api.CodeSandboxState, "it is paused")), 409, api.CodeSandboxState, 0},
		{"retryable", api.Errorf(api.CodeCapacity, "full"), 503, api.CodeCapacity, 1},
		{"retry later", api.Errorf(api.CodeRateLimited, "slow down").With("retry_after_sec", 7), 429, api.CodeRateLimited, 7},
		{"uncoded", secret, 500, api.CodeInternal, 1},
		{"cause", api.Wrap(api.CodeBootFailed, secret, "the sandbox did not start"), 500, api.CodeBootFailed, 1},
		{"storage", api.Errorf(api.CodeDiskFull, "no space left"), 507, api.CodeDiskFull, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, &wire{err: tt.err})
			resp := b.do("GET", box, "")
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
			}
			e := b.failure(resp, tt.code)
			if strings.Contains(fmt.Sprint(e), "secret") {
				t.Errorf("the cause reached the client: %v", e)
			}
			if got, _ := e.Details["retry_after_sec"].(float64); got != tt.retry {
				t.Errorf("retry after %v, want %v", got, tt.retry)
			}
			if header := resp.Header.Get("Retry-After"); (header != "") != (tt.status == 429 || tt.status == 503) {
				t.Errorf("Retry-After %q with %d", header, tt.status)
			}
			b.eventually("the log line", func() bool {
				l := b.log.String()
				return strings.Contains(l, e.RequestID) && strings.Contains(l, "sandbox_id=k3v9x0q2m7c1b8n4t6zd") &&
					(tt.status < 500 || strings.Contains(l, "level=INFO")) &&
					(!errors.Is(tt.err, secret) || strings.Contains(l, "secret detail"))
			})
		})
	}
}

func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Errorf("%s did not come; log:\n%s", what, b.log.String())
}

func TestPanic(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{panics: true})
	e := b.failure(b.do("GET", box, ""), api.CodeInternal)
	if strings.Contains(e.Message, "kaboom") {
		t.Errorf("the panic reached the client: %s", e.Message)
	}
	b.eventually("the stack", func() bool {
		l := b.log.String()
		return strings.Contains(l, "kaboom") && strings.Contains(l, "harness_test.go") && strings.Contains(l, e.RequestID)
	})
}

func TestRequestIDIsOurs(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	form := regexp.MustCompile(`^req_[0-9a-f]{12}$`)
	for _, path := range []string{"/healthz", "/v1/sandboxes", "/nothing", "/openapi.json", "/metrics"} {
		resp := b.do("GET", path, "", "X-Request-Id", "req_mine")
		if id := resp.Header.Get("X-Request-Id"); !form.MatchString(id) {
			t.Errorf("%s: request id %q", path, id)
		}
	}
}

// TestLargeBodyOfUnknownLength: the limit holds for a body that does not say
// how long it is, and the client gets to read the answer.
func TestLargeBodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	for size, code := range map[int]api.Code{maxJSONBody + 1: api.CodeTooLarge, 8 << 20: api.CodeTooLarge, maxJSONBody: ""} {
		body := io.MultiReader(strings.NewReader(`{"cmd":"`), io.LimitReader(letters{}, int64(size-10)), strings.NewReader(`"}`))
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+box+"/exec", io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+userKey)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if code != "" {
			b.failure(resp, code)
		} else if resp.StatusCode != 200 {
			t.Errorf("%d bytes: status %d", size, resp.StatusCode)
		}
		resp.Body.Close()
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// TestAuthBeforeBody: a caller without a key is refused while its body is
// still on the way.
func TestAuthBeforeBody(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	forever := make(chan struct{})
	defer close(forever)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/sandboxes", neverEnds{forever})
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 1000
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b.failure(resp, api.CodeInvalidToken)
	if resp.Header.Get("WWW-Authenticate") == "" {
		t.Error("no WWW-Authenticate")
	}
}

type neverEnds struct{ done <-chan struct{} }

func (n neverEnds) Read(p []byte) (int, error) { <-n.done; return 0, errors.New("over") }
