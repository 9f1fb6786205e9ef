package httpapi

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// BenchmarkHandler is what the API adds to a call, without connection and
// without the work behind it.
func BenchmarkHandler(b *testing.B) {
	a := New(Deps{
		Control: &wire{result: api.ExecResult{Stdout: "hello\n"}, sandbox: api.Sandbox{ID: "k3v9x0q2m7c1b8n4t6zd", Status: api.StatusRunning,
			BootSteps: []api.Step{{Name: "slot", MS: 1}, {Name: "restore", MS: 20}, {Name: "init", MS: 5}}}},
		Keys: wireKeys{}, Log: slog.New(slog.DiscardHandler),
	})
	for _, bb := range []struct{ name, method, path, body string }{
		{"create", "POST", "/v1/sandboxes", `{"template":"base","ttl_seconds":60,"metadata":{"user":"ann"}}`},
		{"exec", "POST", box + "/exec", `{"cmd":"true"}`},
		{"get", "GET", box, ""},
		{"healthz", "GET", "/healthz", ""},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), bb.method, bb.path, strings.NewReader(bb.body))
				r.Header.Set("Authorization", "Bearer "+userKey)
				w := &discard{header: http.Header{}}
				a.ServeHTTP(w, r)
				if w.code >= 300 {
					b.Fatalf("status %d", w.code)
				}
			}
		})
	}
}

// discard is an answer that nobody reads.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (d *discard) WriteHeader(code int)        { d.code = code }

// BenchmarkNew is what the routes and their schemas cost at the start.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New(Deps{Control: &wire{}, Keys: wireKeys{}, Log: slog.New(slog.DiscardHandler)})
	}
}
