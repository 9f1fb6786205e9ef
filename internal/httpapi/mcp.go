package httpapi

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/mcp"
)

// Bounds of the endpoints for models.
const (
	mcpBody          = 4 << 20 // bytes of one message from a client
	mcpIdle          = 30 * time.Minute
	mcpSessions      = 1024 // in all
	mcpSessionsOwner = 64   // of one key and endpoint

	// mcpSessionless is the first version of the protocol without sessions: each
	// request stands for itself.
	mcpSessionless = "2026-07-28"
)

// modelDoor is what serves MCP. It is made when the first client comes.
type modelDoor struct {
	platform, sandbox mcpServer
	sessions          mcpOwners
}

// mcpServer is one set of tools under both forms of the transport.
type mcpServer struct {
	server                *sdk.Server
	sessions, sessionless http.Handler
}

func (a *API) newModelDoor() *modelDoor {
	d := &modelDoor{}
	o := mcp.Options{Version: a.Version.Version, Log: a.Log, Begin: a.beginTool, Session: d.sessions.admit}
	d.platform = a.newMCPServer(mcp.NewPlatform(o))
	d.sandbox = a.newMCPServer(mcp.NewSandbox(o))
	return d
}

func (a *API) newMCPServer(s *sdk.Server) mcpServer {
	get := func(*http.Request) *sdk.Server { return s }
	// What admits a caller is a key that the page itself would have to hold, never
	// an address; so there is nothing to win by rebinding a name.
	o := sdk.StreamableHTTPOptions{MaxRequestBodyBytes: mcpBody, DisableLocalhostProtection: true, SessionTimeout: mcpIdle}
	stateful := sdk.NewStreamableHTTPHandler(get, &o)
	o.Stateless, o.PropagateRequestCancellation = true, true
	return mcpServer{s, a.identify(stateful), a.identify(sdk.NewStreamableHTTPHandler(get, &o))}
}

func (s mcpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.Header.Get("MCP-Protocol-Version") >= mcpSessionless && r.Header.Get("Mcp-Session-Id") == "" {
		s.sessionless.ServeHTTP(w, r)
		return
	}
	s.sessions.ServeHTTP(w, r)
}

// mcpCaller is who sent a request, and for which sandbox.
type mcpCaller struct {
	ctx     context.Context // of the request, which its client's leaving ends
	who     auth.Identity
	sandbox string
	reached Reached
}

const mcpCallerKey = "caller"

// identify says to the SDK who is calling: the guard has found that out already.
// A session belongs to the key and the sandbox that it was begun with.
func (a *API) identify(next http.Handler) http.Handler {
	verify := func(ctx context.Context, _ string, r *http.Request) (*sdkauth.TokenInfo, error) {
		c := &mcpCaller{ctx: ctx, who: who(ctx), sandbox: r.PathValue("id"), reached: reachedBy(r)}
		return &sdkauth.TokenInfo{
			UserID: c.who.Org + "/" + c.who.KeyPrefix + "/" + c.sandbox,
			Extra:  map[string]any{mcpCallerKey: c},
		}, nil
	}
	guarded := sdkauth.RequireBearerToken(verify, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+keyOf(r)) // it may have come in another header
		guarded.ServeHTTP(w, r)
	})
}

// reachedBy is how the client of a request has reached the server.
func reachedBy(r *http.Request) Reached {
	return Reached{host: r.Host, secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"}
}

// beginTool is asked at each call of a tool. A call ends with the request that it
// came in: nobody could be given its answer any more. It counts as a request of
// its own, so that the server does not stop under it.
func (a *API) beginTool(ctx context.Context, extra *sdk.RequestExtra) mcp.Caller {
	c := extra.TokenInfo.Extra[mcpCallerKey].(*mcpCaller)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	a.active.begin()
	return mcp.Caller{
		Platform: &mcpPlatform{a, c.who, c.reached}, Sandbox: c.sandbox, Context: ctx,
		Done: func() { stop(); cancel(nil); a.active.end() },
	}
}

// mcpOwners counts the sessions that are open.
type mcpOwners struct {
	mu      sync.Mutex
	total   int
	byOwner map[string]int
}

// admit takes one more session or refuses it, and counts it until its end.
func (o *mcpOwners) admit(s *sdk.ServerSession, extra *sdk.RequestExtra) error {
	owner := extra.TokenInfo.UserID
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total >= mcpSessions || o.byOwner[owner] >= mcpSessionsOwner {
		return api.Errorf(api.CodeRateLimited, "too many MCP sessions are open").
			WithHint("Close those that are not used; one without requests ends by itself after 30 minutes.")
	}
	if o.byOwner == nil {
		o.byOwner = make(map[string]int)
	}
	o.total++
	o.byOwner[owner]++
	go func() {
		_ = s.Wait() // how a session ended is of no interest here
		o.mu.Lock()
		defer o.mu.Unlock()
		o.total--
		if o.byOwner[owner]--; o.byOwner[owner] == 0 {
			delete(o.byOwner, owner)
		}
	}()
	return nil
}

// close ends the sessions that are left when the server stops.
func (d *modelDoor) close() {
	for _, s := range []*sdk.Server{d.platform.server, d.sandbox.server} {
		for session := range s.Sessions() {
			_ = session.Close() // its client sees the end of the server
		}
	}
}

func (a *API) mcpPlatform(context.Context, *struct{}) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) { a.serveMCP(w, r, a.models().platform) }), nil
}

func (a *API) mcpSandbox(_ context.Context, in *SandboxPath) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		if _, err := a.Control.Get(r.Context(), who(r.Context()), in.ID); err != nil {
			a.refuse(w, r, err)
			return
		}
		a.serveMCP(w, r, a.models().sandbox)
	}), nil
}

func (a *API) serveMCP(w http.ResponseWriter, r *http.Request, s mcpServer) {
	body := &importFile{body: r.Body, deadline: http.NewResponseController(w).SetReadDeadline}
	r.Body = struct {
		io.Reader
		io.Closer
	}{body, r.Body}
	out := &mcpAnswer{ResponseWriter: w}
	s.ServeHTTP(out, r)
	body.done()
	if out.status != 0 {
		a.fail(w, r, out.failure())
	}
}

// mcpAnswer holds back the transport's refusals, which are plain text, so that
// they get a code.
type mcpAnswer struct {
	http.ResponseWriter
	status int
	text   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (w *mcpAnswer) WriteHeader(status int) {
	kind, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if status >= http.StatusBadRequest && kind == "text/plain" {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *mcpAnswer) Write(p []byte) (int, error) {
	if w.status == 0 {
		return w.ResponseWriter.Write(p)
	}
	w.text.Write(p[:min(len(p), 1<<10)])
	return len(p), nil
}

// Flush sends what is buffered.
func (w *mcpAnswer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (w *mcpAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// failure gives a refusal its code. A session of somebody else is as one that
// does not exist.
func (w *mcpAnswer) failure() error {
	text := clip(strings.ToValidUTF8(strings.TrimSpace(w.text.String()), "\uFFFD"))
	switch w.status {
	case http.StatusNotFound, http.StatusForbidden:
		return api.Errorf(api.CodeMCPSession, "this key has no such MCP session")
	case http.StatusRequestEntityTooLarge:
		return api.Errorf(api.CodeTooLarge, "a message may have %d bytes", mcpBody)
	case http.StatusMethodNotAllowed:
		return api.Errorf(api.CodeMethodNotAllowed, "%s", text)
	}
	return &statusError{api.Errorf(api.CodeInvalidRequest, "%s", text), w.status}
}

// docMCP documents all methods of an endpoint for models.
func docMCP(op *huma.Operation) {
	op.Description = "The Model Context Protocol over streamable HTTP. POST sends a JSON-RPC message and is answered with JSON or server-sent events; " +
		"GET is the stream of what the server says by itself; DELETE ends the session in `Mcp-Session-Id`. See docs/mcp.md for the tools."
	object := &huma.Schema{Type: huma.TypeObject, Description: "JSON-RPC 2.0 message"}
	switch op.Method {
	case http.MethodPost:
		// Without a schema: the framework would read the body to check it.
		op.RequestBody = &huma.RequestBody{
			Description: object.Description, Required: true,
			Content: map[string]*huma.MediaType{"application/json": {Example: map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}},
		}
		content(op, "200", "application/json", object, "OK")
		content(op, "200", "text/event-stream", text(), "OK")
	case http.MethodGet:
		content(op, "200", "text/event-stream", text(), "OK")
	case http.MethodDelete:
		op.DefaultStatus = http.StatusNoContent
	}
	errorAnswer(op, "default", "Error")
}
