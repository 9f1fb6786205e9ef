package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
)

// humaConfig is the framework with only what we use of it: JSON, the OpenAPI
// document in two versions, and no unknown query parameters.
func humaConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	// The only raw JSON in the API is a command.
	schemas.RegisterTypeAlias(reflect.TypeFor[json.RawMessage](), reflect.TypeFor[commandSchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.JSON](), reflect.TypeFor[any]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.SignalName](), reflect.TypeFor[signalSchema]())
	// Types of streams, which no operation has as its body.
	for _, t := range []reflect.Type{reflect.TypeFor[api.ExecEvent](), reflect.TypeFor[api.ExecInput](),
		reflect.TypeFor[api.CodeRun](), reflect.TypeFor[api.CodeEvent](),
		reflect.TypeFor[api.Event](), reflect.TypeFor[api.LogLine](), reflect.TypeFor[api.TerminalMessage](),
		reflect.TypeFor[api.FileEvent](), reflect.TypeFor[api.Extracted](), reflect.TypeFor[api.SignedFile]()} {
		schemas.Schema(t, true, "")
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "PandaStack",
				Version:     version,
				Description: "Runs code nobody has reviewed in isolated sandboxes. Every failed request has the same body: {\"error\": {code, message, hint, request_id, details}}; the codes are listed in docs/errors.md.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Tags: []*huma.Tag{
				{Name: "sandboxes", Description: "Isolated computers: their life and what they use."},
				{Name: "snapshots", Description: "Sandboxes as they were at one moment, to start others from."},
				{Name: "branches", Description: "Forks of a sandbox, and its own timeline."},
				{Name: "exec", Description: "Commands in a sandbox."},
				{Name: "lsp", Description: "Language servers in a sandbox."},
				{Name: "mcp", Description: "The Model Context Protocol: the platform as tools for language models."},
				{Name: "code", Description: "Code in contexts that keep their state."},
				{Name: "files", Description: "The filesystem of a sandbox. Relative paths start in the user's home directory."},
				{Name: "git", Description: "Repositories in a sandbox, through the git that is in it."},
				{Name: "ssh", Description: "Shells by SSH: the keys of people, and the way in."},
				{Name: "templates", Description: "What sandboxes start from."},
				{Name: "keys", Description: "The caller and the API keys."},
				{Name: "system", Description: "The server itself."},
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "pds_ and 40 hex digits"},
					"apiKey": {Type: "apiKey", In: "header", Name: "X-API-Key"},
				},
			},
		},
		Formats: map[string]huma.Format{
			"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat,
			// What curl -d says of a body unless it is told otherwise. A
			// body is JSON in any case.
			"application/x-www-form-urlencoded": huma.DefaultJSONFormat,
		},
		DefaultFormat: "application/json",
	}
}

// serveDocument serves the OpenAPI document, in 3.1 and for older tools in 3.0.
// It is written when it is first asked for.
func (a *API) serveDocument() {
	for path, write := range map[string]func() ([]byte, error){
		"/openapi.json":     func() ([]byte, error) { return json.Marshal(a.huma.OpenAPI()) },
		"/openapi-3.0.json": a.huma.OpenAPI().Downgrade,
	} {
		document := sync.OnceValues(write)
		a.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			data, err := document()
			if err != nil {
				a.fail(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(data) // a client that has gone is no error of ours
		})
	}
}

// commandSchema stands for api.Exec.Cmd in the schema.
type commandSchema struct{}

func (commandSchema) Schema(huma.Registry) *huma.Schema {
	one := 1
	return &huma.Schema{
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, MinLength: &one, Description: "A line for the shell, or with args a program"},
			{Type: huma.TypeArray, MinItems: &one, Items: &huma.Schema{Type: huma.TypeString}, Description: "A program and its arguments"},
		},
		Examples: []any{"echo hello", []string{"python3", "-c", "print(6*7)"}},
	}
}

func content(op *huma.Operation, status, mime string, schema *huma.Schema, description string) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	if op.Responses[status] == nil {
		op.Responses[status] = &huma.Response{Description: description}
	}
	if op.Responses[status].Content == nil {
		op.Responses[status].Content = map[string]*huma.MediaType{}
	}
	op.Responses[status].Content[mime] = &huma.MediaType{Schema: schema}
}

func ref(name string) *huma.Schema { return &huma.Schema{Ref: "#/components/schemas/" + name} }

func text() *huma.Schema   { return &huma.Schema{Type: huma.TypeString} }
func binary() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }

func errorAnswer(op *huma.Operation, status, description string) {
	content(op, status, "application/json", ref("Envelope"), description)
}

func docText(op *huma.Operation) { content(op, "200", "text/plain", text(), "OK") }

func docReady(op *huma.Operation) {
	op.Description = "200 once creates from the base template restore a snapshot; until then 503 with what it waits for."
	content(op, "503", "application/json", ref("Health"), "Still starting, or cannot start")
	errorAnswer(op, "default", "Error")
}

func docCreateToken(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "The answer is the only place where the whole key is shown."
}

func docCreate(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "Answers when the sandbox runs and its guest has answered. An empty body takes every default. " +
		"A create that comes while the template is still being made waits for it. " +
		"With `from_snapshot` it goes on from where that sandbox was, as a sandbox of its own."
}

func docList(op *huma.Operation) {
	op.Description = "Newest first. Besides the parameters listed, `metadata.KEY=VALUE` (any number of them) keeps " +
		"only sandboxes that carry all of these labels."
	// The names of metadata.* are the caller's own; the input checks the rest.
	op.RejectUnknownQueryParameters = false
}

func docCreateSnapshot(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "Keeps memory, processes and files while the sandbox goes on; with `memory` false, files only. An empty body takes every default. " +
		"Answers when it is safely stored."
}

func docListSnapshots(op *huma.Operation) { op.Description = "Newest first." }

func docDeleteSnapshot(op *huma.Operation) {
	op.Description = "Sandboxes that were made from it go on."
}

func docExport(op *huma.Operation) {
	op.Description = "The snapshot with all it needs as one file, streamed. A transfer that breaks off is not whole."
	content(op, "200", "application/octet-stream", binary(), "OK")
	errorAnswer(op, "default", "Error")
}

func docImport(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "The body is a file that export gave, here or on another server, of any length. It is checked before the snapshot exists."
	content(op, "201", "application/json", ref("Snapshot"), "Created")
	op.RequestBody = &huma.RequestBody{
		Description: "The bytes of the file",
		Required:    true,
		Content:     map[string]*huma.MediaType{"application/octet-stream": {Schema: binary()}},
	}
}

func docFork(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "The child goes on from where its parent is, with an identity of its own; the parent goes on as well. " +
		"An empty body takes every default. Answers the child's record, or with `count` above 1 a ForkTree."
	content(op, "201", "application/json", &huma.Schema{OneOf: []*huma.Schema{ref("Sandbox"), ref("ForkTree")}}, "Created")
}

func docForkTree(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "One capture, `count` children: all of them, or none. Always answers a ForkTree."
}

func docPromote(op *huma.Operation) {
	op.Description = "Marks the child of a fork to go on with. With `cleanup_siblings` the others are deleted."
}

func docTree(op *huma.Operation) {
	op.Description = "All that descends from the sandbox's oldest ancestor, parents before children, also what is gone."
}

func docHibernate(op *huma.Operation) {
	op.Description = "Its state is on disk and its memory is free when this answers. Any request that needs the sandbox wakes it."
}

func docCheckpoint(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "Cheap enough to take one before every step of work. It goes with its sandbox. An empty body takes every default."
}

func docRestore(op *huma.Operation) {
	op.Description = "The sandbox keeps its id and address. If it fails the sandbox is as before. An empty body means the newest checkpoint."
}

func docLogs(op *huma.Operation) {
	op.Description = "Lines as they were written, as text/plain. With follow=1 server-sent events named `log`, each a LogLine, until the client leaves."
	content(op, "200", "text/plain", text(), "OK")
	content(op, "200", "text/event-stream", text(), "OK")
}

func docEvents(op *huma.Operation) {
	op.Description = "A list, oldest first. With follow=1 server-sent events named `ev`, each an Event with its id, first those asked for and then new ones as they come. " +
		"`since` is the id of the last event seen, or a time (RFC 3339, or Unix seconds)."
	content(op, "200", "application/json", &huma.Schema{Type: huma.TypeArray, Items: ref("Event")}, "OK")
	content(op, "200", "text/event-stream", text(), "OK")
}

func docExec(op *huma.Operation) {
	op.Description = "`cmd` is a line for the shell, a program with `args`, or a list. The exit code of the command is in the answer; it is no error of the call. " +
		"Closing the connection kills the command."
}

func docExecStream(op *huma.Operation) {
	op.Description = "Server-sent events named after their type (start, stdout, stderr, exit, error), each an ExecEvent. " +
		"Output is base64 in `data`. Closing the connection kills the command unless `background` is set."
	content(op, "200", "text/event-stream", ref("ExecEvent"), "OK")
}

func docExecSocket(op *huma.Operation) {
	op.Description = "The client's first text message is an ExecInput of type start, or of type attach to follow a process that runs already; more are stdin, close_stdin and signal, and a binary message is standard input. " +
		"The server sends one ExecEvent a text message and closes after exit. Browsers may send the key as subprotocol `bearer.KEY`."
	op.DefaultStatus = http.StatusSwitchingProtocols
	content(op, "101", "application/json", ref("ExecEvent"), "Switching to WebSocket")
	delete(op.Responses, "200")
}

func docReadFile(op *huma.Operation) {
	op.Description = "The bytes of the file, streamed. Range with one range is honoured, and so is HEAD."
	content(op, "200", "application/octet-stream", binary(), "OK")
	content(op, "206", "application/octet-stream", binary(), "The range asked for")
	errorAnswer(op, "416", "The range is outside the file")
	errorAnswer(op, "default", "Error")
}

func docWriteFile(op *huma.Operation) {
	op.Description = "The body is the file's bytes, of any type and length. Directories above it are made; an existing file is replaced."
	content(op, "200", "application/json", ref("FileInfo"), "OK")
	op.RequestBody = &huma.RequestBody{
		Description: "The bytes of the file",
		Content:     map[string]*huma.MediaType{"application/octet-stream": {Schema: binary()}},
	}
}

func docMakeDir(op *huma.Operation) {
	op.DefaultStatus = http.StatusCreated
	op.Description = "Makes the directory and those above it. One that exists is no error."
}

func errNotFound(r *http.Request) error {
	return api.Errorf(api.CodeNotFound, "there is nothing at %s", clip(r.URL.Path))
}

func errMethod(w http.ResponseWriter, r *http.Request, allowed []string) error {
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return api.Errorf(api.CodeMethodNotAllowed, "%s has no %s; it has %s", clip(r.URL.Path), clip(r.Method), list)
}

// clip bounds what an answer repeats of its request.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
