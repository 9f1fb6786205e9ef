package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

const page = "https://app.example.com"

// preflight asks what a browser asks before it sends a page's request.
func (b *bench) preflight(path, origin string) *http.Response {
	b.Helper()
	return b.do(http.MethodOptions, path, "", "Authorization", "", "Origin", origin,
		"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "authorization,content-type,idempotency-key")
}

func TestPagesOfListedOrigins(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{sandbox: api.Sandbox{ID: "x"}})
	b.api.Origins = []string{"http://localhost:3000", page}

	resp := b.preflight("/v1/sandboxes/x/fs", page)
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key"} {
		if !strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("the header %s is not allowed: %v", name, resp.Header)
		}
	}
	exposed := b.do(http.MethodGet, "/healthz", "", "Origin", page).Header.Get("Access-Control-Expose-Headers")
	for _, name := range []string{"Retry-After", "X-Process-Id", headerTaken} {
		if !strings.Contains(exposed, name) {
			t.Errorf("pages may not read %s, only %s", name, exposed)
		}
	}
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		if !strings.Contains(resp.Header.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("%s is not allowed: %v", method, resp.Header)
		}
	}

	// The answer itself, and a failure just as well: a page must be able to read
	// what went wrong, and under which request id.
	for path, status := range map[string]int{"/v1/sandboxes/x": http.StatusOK, "/nowhere": http.StatusNotFound} {
		resp := b.do(http.MethodGet, path, "", "Origin", page)
		if resp.StatusCode != status || resp.Header.Get("Access-Control-Allow-Origin") != page ||
			!strings.Contains(resp.Header.Get("Access-Control-Expose-Headers"), "X-Request-Id") ||
			resp.Header.Get("Vary") != "Origin" || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
}

func TestPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ origins []string }{"none": {nil}, "another": {[]string{page}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, &wire{})
			b.api.Origins = tc.origins
			for _, origin := range []string{"https://example.com", page + ".evil.example", "null", "*"} {
				resp := b.preflight("/v1/sandboxes", origin)
				if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("preflight of %s: %d %v", origin, resp.StatusCode, resp.Header)
				}
				resp = b.do(http.MethodGet, "/v1/me", "", "Origin", origin)
				if resp.StatusCode != http.StatusOK || resp.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("request of %s: %d %v", origin, resp.StatusCode, resp.Header)
				}
			}
		})
	}
}

func TestAnyOrigin(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	b.api.Origins = []string{AnyOrigin}
	if resp := b.preflight("/v1/sandboxes", "null"); resp.StatusCode != http.StatusNoContent || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
	// OPTIONS that is no preflight is a request like any other.
	b.failure(b.do(http.MethodOptions, "/v1/me", "", "Origin", page), api.CodeMethodNotAllowed)
	// A key is still needed.
	b.failure(b.do(http.MethodGet, "/v1/me", "", "Origin", page, "Authorization", ""), api.CodeInvalidToken)
}
