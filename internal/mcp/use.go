package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

// How long a command may take.
const (
	defaultTimeout = 120  // seconds
	maxTimeout     = 3600 // seconds
)

type runInput struct {
	Command    string            `json:"command" jsonschema:"Line for the shell, such as: cd /workspace && python3 test.py"`
	Cwd        string            `json:"cwd,omitempty" jsonschema:"Directory to run it in; default the user's home directory"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"Environment variables for this command"`
	User       string            `json:"user,omitempty" jsonschema:"User to run it as, such as root; default user"`
	Stdin      string            `json:"stdin,omitempty" jsonschema:"Text for its standard input, which is closed after it"`
	Timeout    float64           `json:"timeout_seconds,omitempty" jsonschema:"The command is killed after this many seconds: default 120, at most 3600"`
	Background bool              `json:"background,omitempty" jsonschema:"Answer as soon as it has started and let it run on, for servers; redirect its output to a file to see it"`
}

type runHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	runInput
}

func (in runHere) parts() (string, runInput) { return in.SandboxID, in.runInput }

type runOutput struct {
	Stdout        string  `json:"stdout"`
	Stderr        string  `json:"stderr"`
	ExitCode      int     `json:"exit_code" jsonschema:"0 is success; 127 command not found; 128+n ended by signal n; 124 ran too long"`
	Signal        string  `json:"signal,omitempty"`
	PID           int     `json:"pid,omitempty"`
	TimedOut      bool    `json:"timed_out,omitempty" jsonschema:"It was killed because it ran too long"`
	Background    bool    `json:"background,omitempty" jsonschema:"It runs on; there is no exit code yet"`
	DurationMS    float64 `json:"duration_ms"`
	StdoutOmitted int64   `json:"stdout_omitted_bytes,omitempty" jsonschema:"Bytes left out of the middle of stdout"`
	StderrOmitted int64   `json:"stderr_omitted_bytes,omitempty" jsonschema:"Bytes left out of the middle of stderr"`
}

// addUse adds the tool that runs commands.
func (t *toolbox) addUse(name string) {
	addIn[runHere](t, &sdk.Tool{
		Name: name, Title: "Run a command",
		Description: `Run a line of shell in the sandbox and wait for its end. Gives stdout, stderr and the exit code; an exit code other than 0 is not an error of the tool.
Of each stream the first and the last 16 KiB are kept, and the result says how many bytes were left out between them.
Each call is a shell of its own: use cwd and env, or one line with &&. There is no terminal, so pass flags such as -y to programs that ask.
Example: {"command": "pip install requests && python3 main.py", "cwd": "/home/user/app", "timeout_seconds": 300}`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: yes()},
	}, run)
}

func run(ctx context.Context, c Caller, id string, in runInput) (runOutput, string, error) {
	req, err := in.exec()
	if err != nil {
		return runOutput{}, "", err
	}
	var stdout, stderr ends
	res, err := c.Platform.Run(ctx, id, req, &stdout, &stderr)
	if err != nil {
		return runOutput{}, "", err
	}
	out := runOutput{
		Stdout: stdout.text(), Stderr: stderr.text(),
		ExitCode: res.ExitCode, Signal: res.Signal, PID: res.PID, TimedOut: res.TimedOut,
		DurationMS: res.DurationMS, Background: in.Background,
	}
	out.StdoutOmitted, out.StderrOmitted = stdout.omitted, stderr.omitted
	return out, out.summary(in), nil
}

func (in runInput) exec() (api.Exec, error) {
	if err := checkTimeout(in.Timeout); err != nil {
		return api.Exec{}, err
	}
	if in.Timeout == 0 && !in.Background {
		in.Timeout = defaultTimeout
	}
	line, err := json.Marshal(in.Command)
	if err != nil {
		return api.Exec{}, api.Wrap(api.CodeInvalidRequest, err, "the command cannot be written as JSON")
	}
	req := api.Exec{Cmd: line, Cwd: in.Cwd, Env: in.Env, User: in.User, TimeoutSeconds: in.Timeout, Background: in.Background}
	if in.Stdin != "" {
		req.Stdin = &in.Stdin
	}
	return req, nil
}

func checkTimeout(seconds float64) error {
	if seconds >= 0 && seconds <= maxTimeout {
		return nil
	}
	return api.Errorf(api.CodeInvalidRequest, "timeout_seconds is at most %d", maxTimeout).
		With("field", "timeout_seconds").WithHint("Run what takes longer as a command in the background and look at it from time to time.")
}

// summary is the text of a result: what was written, and how it ended.
func (o runOutput) summary(in runInput) string {
	if o.Background {
		return fmt.Sprintf("started in the background as process %d", o.PID)
	}
	var b strings.Builder
	paragraph(&b, "", o.Stdout)
	paragraph(&b, "[stderr]\n", o.Stderr)
	switch {
	case o.TimedOut:
		fmt.Fprintf(&b, "[killed: it did not end in the time allowed; allow more with timeout_seconds, or run it in the background]")
	case o.Signal != "":
		fmt.Fprintf(&b, "[ended by %s after %.0f ms]", o.Signal, o.DurationMS)
	default:
		fmt.Fprintf(&b, "[exit code %d after %.0f ms]", o.ExitCode, o.DurationMS)
	}
	return b.String()
}

// paragraph writes a text with what stands above it, if there is one, and ends
// its line.
func paragraph(b *strings.Builder, above, text string) {
	if text == "" {
		return
	}
	b.WriteString(above + text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
}

type readInput struct {
	Path   string `json:"path" jsonschema:"Path of the file; a relative one starts in the user's home directory"`
	Offset int64  `json:"offset,omitempty" jsonschema:"Byte to begin at; default 0. Pass next_offset of the last result to read on"`
	Limit  int    `json:"limit,omitempty" jsonschema:"Bytes to read at most; default and most 65536, of binary files 32768"`
	User   string `json:"user,omitempty" jsonschema:"User to read it as, such as root; default user"`
}

type readHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	readInput
}

func (in readHere) parts() (string, readInput) { return in.SandboxID, in.readInput }

type readOutput struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	Encoding   string `json:"encoding" jsonschema:"utf-8, or base64 when the bytes are not text"`
	Offset     int64  `json:"offset"`
	Bytes      int    `json:"bytes" jsonschema:"Bytes of the file in this result"`
	Size       int64  `json:"size,omitempty" jsonschema:"Bytes of the whole file, where that is known"`
	Truncated  bool   `json:"truncated,omitempty" jsonschema:"There is more of the file"`
	NextOffset int64  `json:"next_offset,omitempty" jsonschema:"Where the next part begins, if there is more"`
}

type writeInput struct {
	Path     string `json:"path" jsonschema:"Path of the file; a relative one starts in the user's home directory"`
	Content  string `json:"content" jsonschema:"All of the new content, at most 1 MiB"`
	Encoding string `json:"encoding,omitempty" jsonschema:"utf-8 (default), or base64 for bytes that are not text"`
	User     string `json:"user,omitempty" jsonschema:"User who will own it, such as root; default user"`
}

type writeHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	writeInput
}

func (in writeHere) parts() (string, writeInput) { return in.SandboxID, in.writeInput }

type writeOutput struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
}

type listInput struct {
	Path  string `json:"path,omitempty" jsonschema:"Directory; default the user's home directory"`
	Depth int    `json:"depth,omitempty" jsonschema:"Levels of directories to list: default 1, at most 10"`
	User  string `json:"user,omitempty" jsonschema:"User to list it as, such as root; default user"`
}

type listHere struct {
	SandboxID string `json:"sandbox_id" jsonschema:"Id of the sandbox"`
	listInput
}

func (in listHere) parts() (string, listInput) { return in.SandboxID, in.listInput }

type entryOutput struct {
	Path     string `json:"path"`
	Type     string `json:"type" jsonschema:"file, directory, symlink or other"`
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`
	Modified string `json:"modified"`
	Target   string `json:"target,omitempty" jsonschema:"Where a symlink leads"`
}

type listOutput struct {
	Path    string        `json:"path"`
	Entries []entryOutput `json:"entries"`
	Omitted int           `json:"omitted_entries,omitempty" jsonschema:"Entries left out; list a directory below, or use find"`
}

// addFiles adds the tools for files.
func (t *toolbox) addFiles() {
	addIn[readHere](t, &sdk.Tool{
		Name: "read_file", Title: "Read a file",
		Description: `Read a file of the sandbox, at most 64 KiB at a time. When there is more, truncated is true and next_offset says where to go on.
Bytes that are not text come as base64, at most 32 KiB at a time. For a few lines of a long file, grep or sed in a command is better.
Example: {"path": "/home/user/app/main.py"}`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, read)
	addIn[writeHere](t, &sdk.Tool{
		Name: "write_file", Title: "Write a file",
		Description: `Make or replace a file of the sandbox, at most 1 MiB, and the directories above it. The content replaces all that was there.
Example: {"path": "app/main.py", "content": "print(6 * 7)\n"}`,
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), IdempotentHint: true, OpenWorldHint: no()},
	}, write)
	addIn[listHere](t, &sdk.Tool{
		Name: "list_dir", Title: "List a directory",
		Description: `List a directory of the sandbox, with depth also what is below it. At most 500 entries; omitted_entries says how many more there are.
Example: {"path": "/home/user/app", "depth": 2}`,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	}, list)
}

func read(ctx context.Context, c Caller, id string, in readInput) (readOutput, string, error) {
	if in.Offset < 0 || in.Limit < 0 {
		return readOutput{}, "", api.Errorf(api.CodeInvalidRequest, "offset and limit may not be negative").With("field", "offset")
	}
	limit := maxText
	if in.Limit > 0 {
		limit = min(in.Limit, maxText)
	}
	file, size, err := c.Platform.ReadFile(ctx, id, File{in.Path, in.User}, in.Offset)
	if err != nil {
		return readOutput{}, "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if err != nil {
		return readOutput{}, "", err
	}
	out := part(data, limit)
	out.Path, out.Offset = in.Path, in.Offset
	if size > 0 {
		out.Size = size
	}
	note := ""
	if out.Truncated {
		out.NextOffset = in.Offset + int64(out.Bytes)
		note = fmt.Sprintf("\n[%d bytes from %d on; there is more: read on with offset %d]", out.Bytes, in.Offset, out.NextOffset)
	}
	return out, out.Content + note, nil
}

// part makes a result of the bytes that were read, one more than limit when there
// is more.
func part(data []byte, limit int) readOutput {
	more := len(data) > limit
	if more {
		if whole := wholeEnd(data[:limit]); len(whole) > 0 {
			data = whole // a character goes into the next part whole
		} else {
			data = data[:limit]
		}
	}
	if utf8.Valid(data) && !bytes.ContainsRune(data, 0) {
		return readOutput{Content: string(data), Encoding: "utf-8", Bytes: len(data), Truncated: more}
	}
	if len(data) > maxBinary {
		data, more = data[:maxBinary], true
	}
	return readOutput{Content: base64.StdEncoding.EncodeToString(data), Encoding: "base64", Bytes: len(data), Truncated: more}
}

func write(ctx context.Context, c Caller, id string, in writeInput) (writeOutput, string, error) {
	data := []byte(in.Content)
	switch in.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return writeOutput{}, "", api.Wrap(api.CodeInvalidRequest, err, "the content is not base64").With("field", "content")
		}
	default:
		return writeOutput{}, "", api.Errorf(api.CodeInvalidRequest, "encoding is utf-8 or base64, not %.40q", in.Encoding).With("field", "encoding")
	}
	if len(data) > maxWrite {
		return writeOutput{}, "", api.Errorf(api.CodeTooLarge, "the content has %d bytes and may have %d", len(data), maxWrite).
			With("field", "content").WithHint("Make the file with a command in the sandbox, such as curl or a program.")
	}
	if err := c.Platform.WriteFile(ctx, id, File{in.Path, in.User}, data); err != nil {
		return writeOutput{}, "", err
	}
	return writeOutput{in.Path, len(data)}, fmt.Sprintf("wrote %d bytes to %s", len(data), in.Path), nil
}

func list(ctx context.Context, c Caller, id string, in listInput) (listOutput, string, error) {
	if in.Depth < 0 || in.Depth > 10 {
		return listOutput{}, "", api.Errorf(api.CodeInvalidRequest, "depth is between 1 and 10").With("field", "depth")
	}
	if in.Path == "" {
		in.Path = "."
	}
	entries, err := c.Platform.ListDir(ctx, id, File{in.Path, in.User}, max(in.Depth, 1))
	if errors.Is(err, &api.Error{Code: api.CodeTooLarge}) {
		return listOutput{}, "", api.AsError(err).WithHint("List less: a smaller depth, or a directory below.")
	}
	if err != nil {
		return listOutput{}, "", err
	}
	out := listOutput{Path: in.Path, Entries: []entryOutput{}}
	if out.Omitted = len(entries) - maxEntries; out.Omitted > 0 {
		entries = entries[:maxEntries]
	} else {
		out.Omitted = 0
	}
	var text strings.Builder
	for _, e := range entries {
		out.Entries = append(out.Entries, entryOutput{valid([]byte(e.Path)), e.Type, e.Size, e.Mode, e.Modified.UTC().Format(time.RFC3339), valid([]byte(e.Target))})
		fmt.Fprintf(&text, "%s %10d %s", e.Mode, e.Size, valid([]byte(e.Path)))
		if e.Target != "" {
			text.WriteString(" -> " + valid([]byte(e.Target)))
		}
		text.WriteByte('\n')
	}
	if out.Omitted > 0 {
		fmt.Fprintf(&text, "[%d more entries left out]\n", out.Omitted)
	}
	if len(entries) == 0 {
		text.WriteString("the directory is empty\n")
	}
	return out, text.String(), nil
}

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }
