package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

type codeInput struct {
	Code      string            `json:"code" jsonschema:"The code. The value of its last expression is a result, and so is what it displays"`
	Language  string            `json:"language,omitempty" jsonschema:"python (default), javascript, typescript or bash: the code runs in the context that the sandbox shares for the language"`
	ContextID string            `json:"context_id,omitempty" jsonschema:"Context of create_context to run in instead of a shared one"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"Environment variables for this code"`
	Timeout   float64           `json:"timeout_seconds,omitempty" jsonschema:"The code is interrupted after this many seconds, and the context keeps its state: default 120, at most 3600"`
}

type codeHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	codeInput
}

func (in codeHere) parts() (string, codeInput) { return in.SandboxID, in.codeInput }

type codeOutput struct {
	Stdout         string       `json:"stdout,omitempty"`
	Stderr         string       `json:"stderr,omitempty"`
	Results        []codeResult `json:"results" jsonschema:"What was shown, in order"`
	Error          *codeError   `json:"error,omitempty" jsonschema:"What the code raised; it is no error of the tool"`
	ExecutionCount int          `json:"execution_count" jsonschema:"Number of this run in its context"`
	DurationMS     float64      `json:"duration_ms"`
	TimedOut       bool         `json:"timed_out,omitempty" jsonschema:"It was interrupted because it ran too long"`
	StdoutOmitted  int64        `json:"stdout_omitted_bytes,omitempty" jsonschema:"Bytes left out of the middle of stdout"`
	StderrOmitted  int64        `json:"stderr_omitted_bytes,omitempty" jsonschema:"Bytes left out of the middle of stderr"`
	ResultsOmitted int          `json:"omitted_results,omitempty" jsonschema:"Values left out after the first 50"`
}

type codeResult struct {
	Main     bool     `json:"main,omitempty" jsonschema:"It is the value of the last expression"`
	Text     string   `json:"text,omitempty"`
	Markdown string   `json:"markdown,omitempty"`
	LaTeX    string   `json:"latex,omitempty"`
	JSON     string   `json:"json,omitempty"`
	Chart    string   `json:"chart,omitempty" jsonschema:"A chart as data: JSON with type, title, axes and elements"`
	Image    string   `json:"image,omitempty" jsonschema:"Media type of the picture, which is in the content of the result"`
	Omitted  []string `json:"omitted,omitempty" jsonschema:"Forms that were left out, with their size; save them to a file in the sandbox to get them"`
}

type codeError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback,omitempty"`
}

type contextInput struct {
	Language string            `json:"language,omitempty" jsonschema:"python (default), javascript, typescript or bash"`
	Cwd      string            `json:"cwd,omitempty" jsonschema:"Directory that its code runs in; default the user's home directory"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"Environment variables of its code"`
}

type contextHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	contextInput
}

func (in contextHere) parts() (string, contextInput) { return in.SandboxID, in.contextInput }

type contextName struct {
	ContextID string `json:"context_id" jsonschema:"Id of the context"`
}

type contextNameHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	contextName
}

func (in contextNameHere) parts() (string, contextName) { return in.SandboxID, in.contextName }

func (in sandboxInput) parts() (string, noInput) { return in.SandboxID, noInput{} }

type contextOutput struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

type contextsOutput struct {
	Contexts []contextOutput `json:"contexts"`
	Omitted  int             `json:"omitted_contexts,omitempty"`
}

type goneOutput struct {
	ContextID string `json:"context_id"`
	Deleted   bool   `json:"deleted"`
}

// addCode adds the tools for code that keeps its state.
func (t *toolbox) addCode() {
	addShownIn[codeHere](t, &sdk.Tool{
		Name: "run_code", Title: "Run code",
		Description: `Run code in the sandbox, in an interpreter that keeps what code defines for the next call. Gives stdout, stderr and the values that were shown; pictures come as images. An error that the code raises is in the result and is not an error of the tool.
Text is cut in the middle, 16 KiB at each end of a stream and 4 KiB of a value; pictures above 1 MiB are left out, and the result says so.
Plots and tables need the template code-interpreter.
Example: {"code": "import pandas\nt = pandas.read_csv('data.csv')\nt.describe()"}`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: yes()},
	}, runCode)
	addIn[contextHere](t, &sdk.Tool{
		Name: "create_context", Title: "Create a code context",
		Description: `Start an interpreter of its own for run_code, with its own variables, directory and environment. Without one, code runs in the context that the sandbox shares for each language.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, id string, in contextInput) (contextOutput, string, error) {
		x, err := c.Platform.CreateContext(ctx, id, api.CreateContext{Language: in.Language, Cwd: in.Cwd, Env: in.Env})
		if err != nil {
			return contextOutput{}, "", err
		}
		o := contextOf(x)
		return o, o.String(), nil
	})
	addIn[sandboxInput](t, &sdk.Tool{
		Name: "list_contexts", Title: "List code contexts",
		Description: `List the code contexts of the sandbox, oldest first, those that it shares as well.`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, listContexts)
	addIn[contextNameHere](t, &sdk.Tool{
		Name: "delete_context", Title: "Delete a code context",
		Description: `End a code context with what it runs and all its variables.`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	}, func(ctx context.Context, c Caller, id string, in contextName) (goneOutput, string, error) {
		if err := c.Platform.DeleteContext(ctx, id, in.ContextID); err != nil {
			return goneOutput{}, "", err
		}
		return goneOutput{in.ContextID, true}, "deleted " + in.ContextID, nil
	})
}

func runCode(ctx context.Context, c Caller, id string, in codeInput) (codeOutput, []sdk.Content, error) {
	if err := checkTimeout(in.Timeout); err != nil {
		return codeOutput{}, nil, err
	}
	if in.ContextID != "" && in.Language != "" {
		return codeOutput{}, nil, api.Errorf(api.CodeInvalidRequest, "only one of context_id and language may be given").With("field", "language")
	}
	if in.Timeout == 0 {
		in.Timeout = defaultTimeout
	}
	req := api.RunCode{Code: in.Code, Language: in.Language, ContextID: in.ContextID, Env: in.Env, TimeoutMS: max(int64(in.Timeout*1000), 1)}
	r := codeReader{out: codeOutput{Results: []codeResult{}}}
	if err := c.Platform.RunCode(ctx, id, req, r.event); err != nil {
		return codeOutput{}, nil, err
	}
	r.out.Stdout, r.out.Stderr = r.stdout.text(), r.stderr.text()
	r.out.StdoutOmitted, r.out.StderrOmitted = r.stdout.omitted, r.stderr.omitted
	return r.out, append([]sdk.Content{&sdk.TextContent{Text: r.out.summary()}}, r.images...), nil
}

// codeReader makes a bounded result of the events of a run.
type codeReader struct {
	out            codeOutput
	stdout, stderr ends
	images         []sdk.Content
	formBytes      int // of the results that are kept
	imageBytes     int
}

// event takes in one event. It never fails: what is too much is left out.
func (r *codeReader) event(e api.CodeEvent) error {
	switch {
	case e.Type == "start":
		r.out.ExecutionCount = e.ExecutionCount
	case e.Type == "stdout":
		_, _ = r.stdout.Write([]byte(e.Text))
	case e.Type == "stderr":
		_, _ = r.stderr.Write([]byte(e.Text))
	case e.Result != nil && len(r.out.Results) >= maxResults:
		r.out.ResultsOmitted++
	case e.Result != nil:
		r.out.Results = append(r.out.Results, r.result(*e.Result))
	case e.Exception != nil:
		r.out.Error = &codeError{
			Name: middleOut(e.Exception.Name, maxForm), Value: middleOut(e.Exception.Value, maxForm), Traceback: middleOut(e.Exception.Traceback, 2*maxForm),
		}
	case e.Type == "end":
		r.out.DurationMS, r.out.TimedOut = e.DurationMS, e.TimedOut
	}
	return nil
}

// result keeps of a value the forms that a model can use, and names the others.
func (r *codeReader) result(o api.CodeOutput) codeResult {
	out := codeResult{Main: o.IsMain}
	leaveOut := func(form string, size int) {
		if size > 0 {
			out.Omitted = append(out.Omitted, fmt.Sprintf("%s (%d bytes)", form, size))
		}
	}
	for _, f := range []struct {
		name, text string
		to         *string
		whole      bool // of no use in part
	}{
		{"text", o.Text, &out.Text, false}, {"markdown", o.Markdown, &out.Markdown, false}, {"latex", o.LaTeX, &out.LaTeX, true},
		{"json", string(o.JSON), &out.JSON, true}, {"chart", string(o.Chart), &out.Chart, true},
	} {
		kept := middleOut(f.text, maxForm)
		if f.whole && len(f.text) > 2*maxForm || r.formBytes+len(kept) > maxForms {
			leaveOut(f.name, len(f.text))
			continue
		}
		r.formBytes += len(kept)
		*f.to = kept
	}
	switch {
	case r.picture(&out, "image/png", "\x89PNG\r\n\x1a\n", o.PNG):
	case r.picture(&out, "image/jpeg", "\xff\xd8\xff", o.JPEG):
	default:
		leaveOut("png", base64.StdEncoding.DecodedLen(len(o.PNG)))
		leaveOut("jpeg", base64.StdEncoding.DecodedLen(len(o.JPEG)))
	}
	leaveOut("html", len(o.HTML))
	leaveOut("svg", len(o.SVG))
	leaveOut("pdf", base64.StdEncoding.DecodedLen(len(o.PDF)))
	leaveOut("javascript", len(o.JavaScript))
	leaveOut("data", len(o.Data))
	leaveOut("extra", len(o.Extra))
	return out
}

// picture adds a picture to the content of the result, unless it is none or too
// large. What it says it is comes from inside the sandbox.
func (r *codeReader) picture(out *codeResult, kind, magic, data string) bool {
	if data == "" || base64.StdEncoding.DecodedLen(len(data)) > maxImage+maxImage/64 { // lines may be broken
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(data) // skips the ends of lines
	if err != nil || !bytes.HasPrefix(raw, []byte(magic)) || len(raw) > maxImage || r.imageBytes+len(raw) > maxImages {
		return false
	}
	r.imageBytes += len(raw)
	r.images = append(r.images, &sdk.ImageContent{Data: raw, MIMEType: kind})
	out.Image = kind
	return true
}

// summary is the text of a result: what was written and shown, and how it ended.
func (o codeOutput) summary() string {
	var b strings.Builder
	paragraph(&b, "", o.Stdout)
	paragraph(&b, "[stderr]\n", o.Stderr)
	for _, r := range o.Results {
		switch {
		case r.Image != "":
			fmt.Fprintf(&b, "[%s] %s\n", r.Image, r.Text)
		case r.Text != "":
			paragraph(&b, "", r.Text)
		case r.Markdown != "":
			paragraph(&b, "", r.Markdown)
		default:
			paragraph(&b, "", r.LaTeX+r.JSON)
		}
		if len(r.Omitted) > 0 {
			fmt.Fprintf(&b, "[left out: %s]\n", strings.Join(r.Omitted, ", "))
		}
	}
	if o.ResultsOmitted > 0 {
		fmt.Fprintf(&b, "[%d more values left out]\n", o.ResultsOmitted)
	}
	if e := o.Error; e != nil {
		paragraph(&b, "[error] ", e.Name+": "+e.Value)
		paragraph(&b, "", e.Traceback)
	}
	if o.TimedOut {
		b.WriteString("[interrupted: it did not end in the time allowed; what it defined is still there]")
	} else {
		fmt.Fprintf(&b, "[ended after %.0f ms]", o.DurationMS)
	}
	return b.String()
}

func contextOf(x api.CodeContext) contextOutput {
	return contextOutput{clipValid(x.ID), clipValid(x.Language), clipValid(x.Cwd)}
}

// clipValid is a short text of a sandbox, bounded.
func clipValid(s string) string { return strings.ToValidUTF8(clip(s, maxLine), "\uFFFD") }

// String is one line about a context.
func (o contextOutput) String() string { return fmt.Sprintf("%s %s in %s", o.ID, o.Language, o.Cwd) }

func listContexts(ctx context.Context, c Caller, id string, _ noInput) (contextsOutput, string, error) {
	list, err := c.Platform.Contexts(ctx, id)
	if err != nil {
		return contextsOutput{}, "", err
	}
	out := contextsOutput{Contexts: []contextOutput{}, Omitted: max(len(list)-maxListed, 0)}
	var text strings.Builder
	for _, x := range list[:len(list)-out.Omitted] {
		o := contextOf(x)
		out.Contexts = append(out.Contexts, o)
		fmt.Fprintln(&text, o)
	}
	return out, endList(&text, len(list), out.Omitted), nil
}

// endList ends the text of a list with what is not in it.
func endList(text *strings.Builder, n, omitted int) string {
	if n == 0 {
		text.WriteString("there are none\n")
	}
	if omitted > 0 {
		fmt.Fprintf(text, "[%d more left out]\n", omitted)
	}
	return text.String()
}
