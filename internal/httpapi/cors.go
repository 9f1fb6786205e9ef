package httpapi

import (
	"net/http"
	"slices"
	"strings"
)

// What pages of other origins may use: the methods and headers of the API and of
// MCP, and the headers of answers that scripts may read.
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, X-API-Key, Content-Type, Idempotency-Key, Range, Last-Event-ID, Mcp-Session-Id, Mcp-Protocol-Version"
	corsExposed = "X-Request-Id, Retry-After, Content-Length, Content-Range, Accept-Ranges, Content-Disposition, Mcp-Session-Id, X-Process-Id, X-Stdin-Taken"
	corsMaxAge  = "7200" // seconds that browsers remember it; the most that they do
)

// AnyOrigin as the only one of Deps.Origins lets every web page call the API.
const AnyOrigin = "*"

// cors says to browsers which web pages may read answers, and reports whether
// that was all that the request asked. Pages of other origins are left as they
// are everywhere: their browser refuses them the answer.
//
// No answer ever allows credentials, which are cookies and the like: what admits
// a caller is a key that the page itself holds, so that an origin on the list
// gets no more than what its key may do.
func (a *API) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(a.Origins) == 0 {
		return false
	}
	h := w.Header()
	allowed := AnyOrigin
	if !slices.Contains(a.Origins, AnyOrigin) {
		// Caches between here and the browser must not give one origin what
		// was said to another.
		h.Add("Vary", "Origin")
		allowed = r.Header.Get("Origin")
		if !slices.ContainsFunc(a.Origins, func(o string) bool { return strings.EqualFold(o, allowed) }) {
			return false
		}
	}
	h.Set("Access-Control-Allow-Origin", allowed)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
