package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

const mcpInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

func (b *bench) mcp(method, path, body string, headers ...string) *http.Response {
	b.Helper()
	return b.do(method, path, body, append([]string{"Accept", "application/json, text/event-stream"}, headers...)...)
}

// TestMCPSessionLimit: a key has so many sessions and no more, which takes nothing
// from the others, and the end of one makes room. What is left ends with the
// server.
func TestMCPSessionLimit(t *testing.T) {
	t.Parallel()
	b := serve(t, &wire{})
	defer b.api.Close()
	var last string
	for range mcpSessionsOwner {
		resp := b.mcp("POST", "/mcp", mcpInitialize)
		if last = resp.Header.Get("Mcp-Session-Id"); last == "" || !strings.Contains(b.read(resp), `"result"`) {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	begin := func(headers ...string) string { return b.read(b.mcp("POST", "/mcp", mcpInitialize, headers...)) }
	if got := begin(); !strings.Contains(got, string(api.CodeRateLimited)) || !strings.Contains(got, "hint: ") {
		t.Errorf("one too many: %s", got)
	}
	if got := begin("Authorization", "Bearer "+adminKey); !strings.Contains(got, `"result"`) {
		t.Errorf("another key: %s", got)
	}
	b.read(b.mcp("DELETE", "/mcp", "", "Mcp-Session-Id", last))
	for deadline := time.Now().Add(time.Minute); !strings.Contains(begin(), `"result"`); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end of a session makes no room")
		}
	}
}

// TestMCPToolErrors: what a tool fails with has its code, and nothing of an error
// without one is told.
func TestMCPToolErrors(t *testing.T) {
	t.Parallel()
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_sandbox","arguments":{"sandbox_id":"x"},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	for err, want := range map[error]string{
		api.Errorf(api.CodeSandboxNotFound, "there is none"):                       `"sandbox.not_found: there is none\nhint: `,
		api.Wrap(api.CodeInternal, http.ErrBodyNotAllowed, "it went wrong inside"): `"internal: it went wrong inside\nhint: `,
		http.ErrBodyNotAllowed: `"internal: something went wrong on the server`,
	} {
		b := serve(t, &wire{err: err})
		got := b.read(b.mcp("POST", "/mcp", call, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "get_sandbox"))
		if !strings.Contains(got, want) || !strings.Contains(got, `"isError":true`) || strings.Contains(got, http.ErrBodyNotAllowed.Error()) {
			t.Errorf("%v: %s", err, got)
		}
		b.api.Close()
	}
}
