package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/internal/guest"
)

// route is one operation of the API.
type route struct {
	method     string
	path       string
	permission permission
	id         string // of the operation, and the name of its method in clients
	tag        string
	summary    string
	handler    registrar
	more       func(*huma.Operation) // documentation beyond the types; may be nil
}

// registrar adds an operation with its handler to the API.
type registrar func(huma.API, huma.Operation)

// typed is a handler whose input and output are Go types, which the schema,
// the decoding and the validation come from.
func typed[I, O any](h func(context.Context, *I) (*O, error)) registrar {
	return func(a huma.API, op huma.Operation) { huma.Register(a, op, h) }
}

const (
	sandboxes = "/v1/sandboxes"
	sandbox   = sandboxes + "/{id}"
	snapshots = "/v1/snapshots"
	snapshot  = snapshots + "/{snapshot}"
)

// routes is the whole API: one row an operation.
func (a *API) routes() []route {
	const get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	all := []route{
		{get, "/healthz", public, "health", "system", "Whether the server is alive", typed(a.health), nil},
		{get, "/readyz", public, "ready", "system", "Whether creates are fast yet", typed(a.ready), docReady},
		{get, "/version", public, "version", "system", "What runs here", typed(a.version), nil},
		{get, "/metrics", public, "prometheusMetrics", "system", "Counters for Prometheus", typed(a.prometheus), docText},

		{get, "/v1/me", anyKey, "me", "keys", "Who is calling", typed(a.me), nil},
		{get, "/v1/me/tokens", anyKey, "listTokens", "keys", "List API keys", typed(a.listTokens), nil},
		{post, "/v1/me/tokens", adminly, "createToken", "keys", "Create an API key", typed(a.createToken), docCreateToken},
		{del, "/v1/me/tokens/{prefix}", anyKey, "revokeToken", "keys", "Revoke an API key", typed(a.revokeToken), nil},

		{get, "/v1/templates", anyKey, "listTemplates", "templates", "List templates", typed(a.listTemplates), nil},
		{get, "/v1/templates/{name}", anyKey, "getTemplate", "templates", "Get a template", typed(a.getTemplate), nil},

		{post, sandboxes, anyKey, "createSandbox", "sandboxes", "Create a sandbox", typed(a.createSandbox), docCreate},
		{get, sandboxes, anyKey, "listSandboxes", "sandboxes", "List sandboxes", typed(a.listSandboxes), docList},
		{get, sandbox, anyKey, "getSandbox", "sandboxes", "Get a sandbox", typed(a.getSandbox), nil},
		{del, sandbox, anyKey, "deleteSandbox", "sandboxes", "Delete a sandbox", typed(a.deleteSandbox), nil},
		{post, sandbox + "/pause", anyKey, "pauseSandbox", "sandboxes", "Freeze a sandbox", typed(a.pauseSandbox), nil},
		{post, sandbox + "/resume", anyKey, "resumeSandbox", "sandboxes", "Let a paused sandbox go on", typed(a.resumeSandbox), nil},
		{get, sandbox + "/lifecycle", anyKey, "getLifecycle", "sandboxes", "How long a sandbox lives", typed(a.getLifecycle), nil},
		{patch, sandbox + "/lifecycle", anyKey, "setLifecycle", "sandboxes", "Change how long a sandbox lives", typed(a.setLifecycle), nil},
		{post, sandbox + "/hibernate", anyKey, "hibernateSandbox", "sandboxes", "Put a sandbox to sleep on disk", typed(a.hibernate), docHibernate},
		{post, sandbox + "/wake", anyKey, "wakeSandbox", "sandboxes", "Wake a hibernated sandbox", typed(a.wake), nil},
		{get, sandbox + "/metrics", anyKey, "getMetrics", "sandboxes", "What a sandbox uses now", typed(a.getMetrics), nil},
		{get, "/v1/metrics/sandbox/{id}", anyKey, "getMetricsSeries", "sandboxes", "What a sandbox used over the last while", typed(a.getSeries), docSeries},
		{get, sandbox + "/logs", anyKey, "getLogs", "sandboxes", "Output of a sandbox's processes", typed(a.getLogs), docLogs},
		{get, sandbox + "/events", anyKey, "getEvents", "sandboxes", "What happened to a sandbox", typed(a.getEvents), docEvents},

		{post, sandbox + "/snapshots", anyKey, "createSnapshot", "snapshots", "Take a snapshot of a sandbox", typed(a.createSnapshot), docCreateSnapshot},
		{post, sandbox + "/snapshot", anyKey, "snapshotSandbox", "snapshots", "Take a snapshot of a sandbox", typed(a.createSnapshot), docCreateSnapshot},
		{get, sandbox + "/snapshots", anyKey, "listSandboxSnapshots", "snapshots", "List the snapshots of a sandbox", typed(a.listSandboxSnapshots), docListSnapshots},
		{get, snapshots, anyKey, "listSnapshots", "snapshots", "List snapshots", typed(a.listSnapshots), docListSnapshots},
		{post, snapshots + "/import", anyKey, "importSnapshot", "snapshots", "Make a snapshot of an exported file", typed(a.importSnapshot), docImport},
		{get, snapshot, anyKey, "getSnapshot", "snapshots", "Get a snapshot", typed(a.getSnapshot), nil},
		{del, snapshot, anyKey, "deleteSnapshot", "snapshots", "Delete a snapshot", typed(a.deleteSnapshot), docDeleteSnapshot},
		{get, snapshot + "/export", anyKey, "exportSnapshot", "snapshots", "Read a snapshot as one file", typed(a.exportSnapshot), docExport},

		{post, sandbox + "/fork", anyKey, "forkSandbox", "branches", "Fork a sandbox", typed(a.fork), docFork},
		{post, sandbox + "/fork-tree", anyKey, "forkTree", "branches", "Fork a sandbox into several", typed(a.forkTree), docForkTree},
		{post, sandbox + "/promote", anyKey, "promoteSandbox", "branches", "Choose one child of a fork", typed(a.promote), docPromote},
		{get, sandbox + "/tree", anyKey, "getTree", "branches", "Lineage of a sandbox", typed(a.getTree), docTree},
		{post, sandbox + "/checkpoint", anyKey, "createCheckpoint", "branches", "Note where a sandbox is on its timeline", typed(a.createCheckpoint), docCheckpoint},
		{get, sandbox + "/checkpoints", anyKey, "listCheckpoints", "branches", "Timeline of a sandbox", typed(a.listCheckpoints), nil},
		{del, sandbox + "/checkpoints/{checkpoint}", anyKey, "deleteCheckpoint", "branches", "Delete a checkpoint", typed(a.deleteCheckpoint), nil},
		{post, sandbox + "/restore", anyKey, "restoreSandbox", "branches", "Take a sandbox back to a checkpoint", typed(a.restore), docRestore},

		{post, sandbox + "/exec", anyKey, "exec", "exec", "Run a command and wait for it", typed(a.exec), docExec},
		{post, sandbox + "/exec/stream", anyKey, "execStream", "exec", "Run a command and follow its output", typed(a.execStream), docExecStream},
		{get, sandbox + "/exec/ws", anyKey, "execWebSocket", "exec", "Run a command over a WebSocket", typed(a.execSocket), docExecSocket},
		{get, sandbox + "/exec/pty", anyKey, "execTerminal", "exec", "Use a terminal over a WebSocket", typed(a.terminal), docTerminal},

		{post, sandbox + "/code", anyKey, "runCode", "code", "Run code in a context", typed(a.runCode), docRunCode},
		{get, sandbox + "/code/languages", anyKey, "sandboxLanguages", "code", "Languages that a sandbox can run", typed(a.sandboxLanguages), nil},
		{post, sandbox + "/contexts", anyKey, "createContext", "code", "Create a code context", typed(a.createContext), docCreateContext},
		{get, sandbox + "/contexts", anyKey, "listContexts", "code", "List code contexts", typed(a.listContexts), nil},
		{del, sandbox + "/contexts/{context}", anyKey, "deleteContext", "code", "Delete a code context", typed(a.onContext((*guest.Client).DeleteContext)), nil},
		{post, sandbox + "/contexts/{context}/restart", anyKey, "restartContext", "code", "Give a code context a new kernel", typed(a.onContext((*guest.Client).RestartContext)), nil},
		{post, sandbox + "/contexts/{context}/interrupt", anyKey, "interruptContext", "code", "Interrupt what a code context runs", typed(a.onContext((*guest.Client).InterruptContext)), nil},
		{get, "/v1/repl/languages", anyKey, "replLanguages", "code", "Languages that contexts know", typed(a.languages), nil},
		{post, sandbox + "/repl", anyKey, "repl", "code", "Run code in the shared context of a language", typed(a.repl), docRepl},
		{post, sandbox + "/repl/sessions", anyKey, "createSession", "code", "Create a code context", typed(a.createContext), docCreateContext},
		{get, sandbox + "/repl/sessions", anyKey, "listSessions", "code", "List code contexts", typed(a.listSessions), nil},
		{post, sandbox + "/repl/sessions/{context}/run", anyKey, "runInSession", "code", "Run code in a context", typed(a.runInSession), nil},
		{del, sandbox + "/repl/sessions/{context}", anyKey, "deleteSession", "code", "Delete a code context", typed(a.onContext((*guest.Client).DeleteContext)), nil},

		{get, sandbox + "/processes", anyKey, "listProcesses", "exec", "List processes", typed(a.listProcesses), nil},
		{get, sandbox + "/processes/{pid}", anyKey, "attachProcess", "exec", "Follow a process that runs", typed(a.attachProcess), docAttach},
		{del, sandbox + "/processes/{pid}", anyKey, "killProcess", "exec", "Kill a process and its descendants", typed(a.killProcess), docKillProcess},
		{post, sandbox + "/processes/{pid}/stdin", anyKey, "feedProcess", "exec", "Write to a process's input", typed(a.feedProcess), docFeed},
		{post, sandbox + "/processes/{pid}/stdin/close", anyKey, "closeStdin", "exec", "Give a process end of file", typed(a.closeStdin), nil},
		{post, sandbox + "/processes/{pid}/signal", anyKey, "signalProcess", "exec", "Send a process a signal", typed(a.signalProcess), nil},

		{get, sandbox + "/fs", anyKey, "readFile", "files", "Read a file", typed(a.readFile), docReadFile},
		{put, sandbox + "/fs", anyKey, "writeFile", "files", "Write a file", typed(a.writeFile), docWriteFile},
		{del, sandbox + "/fs", anyKey, "removeFile", "files", "Remove a file or directory", typed(a.removeFile), nil},
		{get, sandbox + "/fs/stat", anyKey, "statFile", "files", "Describe a file", typed(a.statFile), nil},
		{get, sandbox + "/fs/dir", anyKey, "listDir", "files", "List a directory", typed(a.listDir), nil},
		{post, sandbox + "/fs/dir", anyKey, "makeDir", "files", "Make a directory", typed(a.makeDir), docMakeDir},
		{put, sandbox + "/fs/dir", anyKey, "putDir", "files", "Make a directory", typed(a.makeDir), docMakeDir},
		{post, sandbox + "/fs/move", anyKey, "moveFile", "files", "Move or rename a file", typed(a.moveFile), nil},

		{get, "/v1/lsp/languages", anyKey, "lspLanguages", "lsp", "Languages with language servers", typed(a.lspLanguages), nil},
		{get, sandbox + "/lsp/{lang}", anyKey, "lspWebSocket", "lsp", "Talk to a language server", typed(a.lspSocket), docLSPSocket},

		{post, "/mcp", anyKey, "mcp", "mcp", "Tools for models", typed(a.mcpPlatform), docMCP},
		{get, "/mcp", anyKey, "mcpStream", "mcp", "What the server says by itself", typed(a.mcpPlatform), docMCP},
		{del, "/mcp", anyKey, "mcpEnd", "mcp", "End a session", typed(a.mcpPlatform), docMCP},
		{post, "/v1/mcp", anyKey, "mcpV1", "mcp", "Tools for models", typed(a.mcpPlatform), docMCP},
		{get, "/v1/mcp", anyKey, "mcpV1Stream", "mcp", "What the server says by itself", typed(a.mcpPlatform), docMCP},
		{del, "/v1/mcp", anyKey, "mcpV1End", "mcp", "End a session", typed(a.mcpPlatform), docMCP},
		{post, sandbox + "/mcp", anyKey, "sandboxMCP", "mcp", "Tools for models, in one sandbox", typed(a.mcpSandbox), docMCP},
		{get, sandbox + "/mcp", anyKey, "sandboxMCPStream", "mcp", "What the server says by itself", typed(a.mcpSandbox), docMCP},
		{del, sandbox + "/mcp", anyKey, "sandboxMCPEnd", "mcp", "End a session", typed(a.mcpSandbox), docMCP},
	}
	return slices.Concat(all, a.fsRoutes(), a.gitRoutes(), a.previewRoutes(), a.networkRoutes(), a.sshRoutes())
}

// register adds one route: its documentation, then its guard, then the bound
// on its body, then the handler.
func (a *API) register(r route) {
	op := huma.Operation{
		Method:          r.method,
		Path:            r.path,
		OperationID:     r.id,
		Summary:         r.summary,
		Tags:            []string{r.tag},
		MaxBodyBytes:    maxJSONBody + 1, // the framework refuses a body of exactly its limit
		BodyReadTimeout: bodyReadTimeout,
		Middlewares:     huma.Middlewares{a.guard(r.permission)},

		RejectUnknownQueryParameters: true,
	}
	if r.permission != public {
		op.Security = []map[string][]string{{"bearer": {}}, {"apiKey": {}}}
	}
	if usesSandbox(r) {
		op.Middlewares = append(op.Middlewares, a.use)
	}
	if !streamed(r.id) && r.id != "feedProcess" && r.tag != "mcp" { // the bodies that are streams of any length, or bounded elsewhere
		op.Middlewares = append(op.Middlewares, a.boundBody)
	}
	if r.more != nil {
		r.more(&op)
	}
	r.handler(a.huma, op)
}

// usesSandbox reports whether a route is about a sandbox and a use of it. What
// only reads what is written down about it is none, or who looks at it now and
// then would keep it awake; and what ends its being awake is none either.
func usesSandbox(r route) bool {
	switch r.id {
	case "getSandbox", "getEvents", "getMetrics", "getLifecycle", "getTree", "getSSHInfo", "listSandboxSnapshots", "listCheckpoints",
		"getSandboxNetwork", "setSandboxNetwork", "getNetworkLog", "hibernateSandbox", "deleteSandbox", "listPorts", "exposePort", "closePort", "previewSandbox", "signPreview", "sandboxMCPStream", "sandboxMCPEnd":
		return false
	}
	return r.path == sandbox || strings.HasPrefix(r.path, sandbox+"/")
}

// use keeps a sandbox of the caller's from going to sleep until the handler has returned, also
// that of a stream or a WebSocket.
func (a *API) use(ctx huma.Context, next func(huma.Context)) {
	done := a.Control.UseBy(ctx.Context(), who(ctx.Context()), ctx.Param("id"))
	defer done()
	next(ctx)
}

// noRoute answers requests that no route takes: 405 where the path exists for
// another method, else 404.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request) {
	r.Pattern = "" // counted as none
	var allowed []string
	probe := *r
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe.Method = m
		if _, pattern := a.mux.Handler(&probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		a.refuse(w, r, errNotFound(r))
		return
	}
	a.refuse(w, r, errMethod(w, r, allowed))
}
