// Package mcp offers the platform to language models: the tools of the Model
// Context Protocol, for all sandboxes of a key or for one of them. The protocol
// itself (sessions, versions, transports) is the SDK's.
//
// # Rules
//
// The tools are written once over Platform, which the server's control plane and
// the Go client both satisfy, so that a model sees the same over HTTP and over
// standard input and output. What a model reads is bounded: output keeps its
// beginning and its end, lists and files come in parts, and each result says what
// was left out. A failure is the result of the tool, with the code, the message
// and the hint of the API, never a protocol error and never a text without a
// code. The end of a call's context ends what it began: the command it runs is
// killed.
//
// Nothing is made before a server is asked for: the program that holds this
// package is started once for every sandbox.
package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

// Platform is what the tools ask for, on behalf of one caller. Errors carry api
// codes. Sandboxes that sleep are woken by what needs them.
type Platform interface {
	Create(ctx context.Context, req api.CreateSandbox) (api.Sandbox, error)
	List(ctx context.Context, q ListQuery) (api.SandboxList, error)
	Get(ctx context.Context, id string) (api.Sandbox, error)
	Delete(ctx context.Context, id string) error
	Hibernate(ctx context.Context, id string) (api.Sandbox, error)

	// Run runs a command to its end and writes its output as it comes. When ctx
	// ends the command is killed. One in the background is only started.
	Run(ctx context.Context, id string, req api.Exec, stdout, stderr io.Writer) (api.ExecResult, error)

	// ReadFile opens a file at an offset and gives its whole size, -1 where that
	// is not known.
	ReadFile(ctx context.Context, id string, f File, offset int64) (io.ReadCloser, int64, error)
	WriteFile(ctx context.Context, id string, f File, data []byte) error
	ListDir(ctx context.Context, id string, f File, depth int) ([]api.FileInfo, error)

	// RunCode runs code in a context to its end and gives its events as they come.
	// When ctx ends the code is interrupted.
	RunCode(ctx context.Context, id string, req api.RunCode, event func(api.CodeEvent) error) error
	Contexts(ctx context.Context, id string) ([]api.CodeContext, error)
	CreateContext(ctx context.Context, id string, req api.CreateContext) (api.CodeContext, error)
	DeleteContext(ctx context.Context, id, context string) error

	// Processes lists those that were started through the API, with all also those
	// that ended lately. Kill ends one, by its number or tag, and its descendants.
	Processes(ctx context.Context, id string, all bool) ([]api.Process, error)
	Kill(ctx context.Context, id, process string) error

	// Ports lists the ports that something listens on or was said of. Preview gives
	// the plain address of one, SignPreview an address that opens a private one too.
	Ports(ctx context.Context, id string) ([]api.Port, error)
	Preview(ctx context.Context, id string, port int) (api.Preview, error)
	SignPreview(ctx context.Context, id string, req api.PreviewRequest) (api.PreviewURL, error)

	Fork(ctx context.Context, id string, req api.Fork) (api.ForkTree, error)
	Snapshot(ctx context.Context, id string, req api.CreateSnapshot) (api.Snapshot, error)
	Checkpoint(ctx context.Context, id, name string) (api.Snapshot, error)
	Restore(ctx context.Context, id, checkpoint string) (api.Sandbox, error)
	Snapshots(ctx context.Context, q SnapshotQuery) (api.SnapshotList, error)
	Templates(ctx context.Context) ([]api.Template, error)
}

// ListQuery selects sandboxes. Empty fields select all.
type ListQuery struct {
	Status   []api.Status
	Template string
	Metadata map[string]string
	Limit    int
	Page     string
}

// SnapshotQuery selects snapshots. Empty fields select all.
type SnapshotQuery struct {
	SandboxID string
	Limit     int
	Page      string
}

// File names a file as one of the sandbox's users sees it; the empty user is the
// default one.
type File struct{ Path, User string }

// Caller is one call of a tool: on whose behalf, with which context, and what to
// do when it is over.
type Caller struct {
	Platform Platform
	Sandbox  string // of a server that is for one sandbox
	Context  context.Context
	Done     func()
}

// Options say how a server finds out who is calling.
type Options struct {
	Version string
	Log     *slog.Logger

	// Begin is asked at each call of a tool.
	Begin func(ctx context.Context, extra *sdk.RequestExtra) Caller

	// Session is asked when a client wants to begin a session and may refuse it;
	// nil: all are welcome.
	Session func(s *sdk.ServerSession, extra *sdk.RequestExtra) error
}

const platformInstructions = `Sandboxes are isolated Linux computers for running code that nobody has reviewed.
Create one, run commands and code and write files in it, and delete it when it is not needed any more; it deletes itself when its time to live is over.
Fork a running sandbox to try several things from the same state. Take a checkpoint before a risky step and restore it if the step goes wrong.
Long results are cut in the middle and say so: redirect long output to a file and read the part that matters.`

const sandboxInstructions = `These tools work in one sandbox, an isolated Linux computer. Commands and files are those of its user "user", who may have sudo; relative paths start in the home directory.
Long results are cut in the middle and say so: redirect long output to a file and read the part that matters.`

// NewPlatform makes a server with the tools for all sandboxes of a caller.
func NewPlatform(o Options) *sdk.Server {
	t := newToolbox(o, "pandastack", "PandaStack", platformInstructions)
	t.addLife()
	t.addBranches()
	t.addCatalogue()
	t.platform = true
	t.addInside("run_command")
	return t.server
}

// NewSandbox makes a server with the tools for the one sandbox that Begin names.
func NewSandbox(o Options) *sdk.Server {
	t := newToolbox(o, "pandastack-sandbox", "PandaStack sandbox", sandboxInstructions)
	t.addInside("shell")
	return t.server
}

// toolbox is a server that is being filled.
type toolbox struct {
	Options
	server   *sdk.Server
	platform bool // the tools are for all sandboxes of a caller
}

// addInside adds the tools that work in a sandbox.
func (t *toolbox) addInside(run string) {
	t.addUse(run)
	t.addFiles()
	t.addCode()
	t.addProcesses()
	t.addPorts()
}

func newToolbox(o Options, name, title, instructions string) *toolbox {
	t := &toolbox{Options: o}
	t.server = sdk.NewServer(&sdk.Implementation{Name: name, Title: title, Version: o.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	t.server.AddReceivingMiddleware(t.admit, codeErrors)
	return t
}

// add adds a tool whose result is structured, with a text beside it for clients
// that show only that.
func add[In, Out any](t *toolbox, tool *sdk.Tool, h func(ctx context.Context, c Caller, in In) (Out, string, error)) {
	addShown(t, tool, func(ctx context.Context, c Caller, in In) (Out, []sdk.Content, error) {
		out, text, err := h(ctx, c, in)
		return out, []sdk.Content{&sdk.TextContent{Text: text}}, err
	})
}

// addShown is add for a tool that shows more than a text.
func addShown[In, Out any](t *toolbox, tool *sdk.Tool, h func(ctx context.Context, c Caller, in In) (Out, []sdk.Content, error)) {
	sdk.AddTool(t.server, tool, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		c := t.Begin(ctx, req.Extra)
		if c.Done != nil {
			defer c.Done()
		}
		out, content, err := h(c.Context, c, in)
		if err != nil {
			return nil, out, t.failure(err, tool.Name)
		}
		return &sdk.CallToolResult{Content: content}, out, nil
	})
}

// located is the arguments of a tool together with the sandbox that they are for.
type located[In any] interface {
	parts() (sandbox string, in In)
}

// addIn adds a tool that works in a sandbox. On the platform's server its arguments
// are At, which name the sandbox; on the server of one sandbox they are In.
func addIn[At located[In], In, Out any](t *toolbox, tool *sdk.Tool, h func(ctx context.Context, c Caller, id string, in In) (Out, string, error)) {
	addShownIn[At](t, tool, func(ctx context.Context, c Caller, id string, in In) (Out, []sdk.Content, error) {
		out, text, err := h(ctx, c, id, in)
		return out, []sdk.Content{&sdk.TextContent{Text: text}}, err
	})
}

// addShownIn is addIn for a tool that shows more than a text.
func addShownIn[At located[In], In, Out any](t *toolbox, tool *sdk.Tool, h func(ctx context.Context, c Caller, id string, in In) (Out, []sdk.Content, error)) {
	if t.platform {
		addShown(t, tool, func(ctx context.Context, c Caller, in At) (Out, []sdk.Content, error) {
			id, rest := in.parts()
			return h(ctx, c, id, rest)
		})
		return
	}
	addShown(t, tool, func(ctx context.Context, c Caller, in In) (Out, []sdk.Content, error) {
		return h(ctx, c, c.Sandbox, in)
	})
}

// failure makes what a model may see of an error. The whole of one without a code
// goes to the log.
func (t *toolbox) failure(err error, tool string) error {
	coded := api.AsError(err)
	if coded.Code == api.CodeInternal && t.Log != nil {
		t.Log.Error("a tool failed", "tool", tool, "error", err)
	}
	return &toolError{coded}
}

// toolError is the text of a failed tool: what went wrong, and what to do.
type toolError struct{ failure *api.Error }

func (e *toolError) Error() string {
	text := string(e.failure.Code) + ": " + e.failure.Message
	if e.failure.Hint != "" {
		text += "\nhint: " + e.failure.Hint
	}
	return text
}

// errorKey is where a failed result has its error in the API's form.
const errorKey = "pandastack/error"

// codeErrors gives every failed result its code, those that the SDK makes of
// arguments that do not fit the schema as well.
func codeErrors(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		result, ok := res.(*sdk.CallToolResult)
		if err != nil || !ok || !result.IsError {
			return res, err
		}
		var e *toolError
		if !errors.As(result.GetError(), &e) {
			text := "the arguments do not fit"
			if cause := result.GetError(); cause != nil {
				text = strings.ToValidUTF8(clip(cause.Error(), 1000), "\uFFFD")
			}
			e = &toolError{api.Errorf(api.CodeInvalidRequest, "%s", text).WithHint("Correct the arguments; the schema of the tool says what it takes.")}
			result.SetError(e)
			result.Content = []sdk.Content{&sdk.TextContent{Text: e.Error()}}
		}
		result.Meta = sdk.Meta{errorKey: e.failure}
		return result, nil
	}
}

// admit asks whether a client may begin a session.
func (t *toolbox) admit(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if s, ok := req.GetSession().(*sdk.ServerSession); ok && method == "initialize" && t.Session != nil {
			if err := t.Session(s, req.GetExtra()); err != nil {
				return nil, &toolError{api.AsError(err)}
			}
		}
		return next(ctx, method, req)
	}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
