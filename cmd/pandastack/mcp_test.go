//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

// bearer sends a key, as clients of MCP are told to.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// model is a client of MCP, as the programs around a model are.
type model struct {
	*testing.T
	*sdk.ClientSession
}

func connectModel(t *testing.T, transport sdk.Transport) *model {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return &model{t, session}
}

func (s *server) model(t *testing.T, path string) *model {
	t.Helper()
	return connectModel(t, &sdk.StreamableClientTransport{Endpoint: s.addr + path, HTTPClient: &http.Client{Transport: bearer{s.key}}})
}

// stdioModel talks to the program over its standard streams.
func (s *server) stdioModel(t *testing.T, args ...string) *model {
	t.Helper()
	cmd := program(append([]string{"mcp"}, args...)...)
	cmd.Env = append(os.Environ(), api.EnvBaseURL+"="+s.addr, api.EnvAPIKey+"="+s.key)
	cmd.Stderr = os.Stderr
	return connectModel(t, &sdk.CommandTransport{Command: cmd})
}

// call calls a tool and decodes its structured result into out.
func (m *model) call(name string, args map[string]any, out any) *sdk.CallToolResult {
	m.Helper()
	res, err := m.CallTool(m.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		m.Fatalf("%s: %v", name, err)
	}
	if res.IsError {
		m.Fatalf("%s: %s", name, textOf(res))
	}
	if out != nil {
		raw, _ := json.Marshal(res.StructuredContent)
		if err := json.Unmarshal(raw, out); err != nil {
			m.Fatalf("%s: %v: %s", name, err, raw)
		}
	}
	return res
}

// failure calls a tool that must fail, and gives its code and text.
func (m *model) failure(name string, args map[string]any) (code, text string) {
	m.Helper()
	res, err := m.CallTool(m.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		m.Fatalf("%s: %v: a failure of a tool is no error of the protocol", name, err)
	}
	if !res.IsError {
		m.Fatalf("%s: worked: %s", name, textOf(res))
	}
	e, _ := res.Meta["pandastack/error"].(map[string]any)
	code, _ = e["code"].(string)
	return code, textOf(res)
}

func textOf(res *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

type ran struct {
	Stdout        string `json:"stdout"`
	Stderr        string `json:"stderr"`
	ExitCode      int    `json:"exit_code"`
	TimedOut      bool   `json:"timed_out"`
	PID           int    `json:"pid"`
	StdoutOmitted int64  `json:"stdout_omitted_bytes"`
}

var platformTools = []string{
	"checkpoint_sandbox", "create_context", "create_sandbox", "delete_context", "delete_sandbox", "fork_sandbox", "get_sandbox",
	"hibernate_sandbox", "kill_process", "list_contexts", "list_dir", "list_ports", "list_processes", "list_sandboxes", "list_snapshots", "list_templates",
	"preview_url", "read_file", "restore_sandbox", "run_code", "run_command", "snapshot_sandbox", "write_file",
}

func (m *model) toolNames() []string {
	m.Helper()
	res, err := m.ListTools(m.Context(), nil)
	if err != nil {
		m.Fatal(err)
	}
	var names []string
	for _, t := range res.Tools {
		names = append(names, t.Name)
		if t.Description == "" || t.InputSchema == nil || t.OutputSchema == nil || t.Annotations == nil {
			m.Errorf("tool %s is not described", t.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestMCP uses every tool, over each way that there is to reach them.
func TestMCP(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	for name, dial := range map[string]func(*testing.T) *model{
		"http":  func(t *testing.T) *model { return s.model(t, "/mcp") },
		"alias": func(t *testing.T) *model { return s.model(t, "/v1/mcp") },
		"stdio": func(t *testing.T) *model { return s.stdioModel(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := dial(t)
			if got := m.toolNames(); !slices.Equal(got, platformTools) {
				t.Fatalf("tools %v", got)
			}
			useTools(m)
		})
	}
}

func useTools(m *model) {
	var box struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	m.call("create_sandbox", map[string]any{"ttl_seconds": 600, "metadata": map[string]any{"by": m.Name()}}, &box)
	m.Cleanup(func() { // the context of the test is over by then
		m.CallTool(context.Background(), &sdk.CallToolParams{Name: "delete_sandbox", Arguments: map[string]any{"sandbox_id": box.ID}})
	})
	in := func(args map[string]any) map[string]any {
		args["sandbox_id"] = box.ID
		return args
	}
	m.useFiles(in)
	m.useCommands(in)
	m.useCode(in)
	m.useProcesses(in)
	m.usePorts(in)
	m.useFailures(in)
	m.useBranches(in)

	var list struct {
		Sandboxes []struct {
			ID string `json:"id"`
		} `json:"sandboxes"`
	}
	m.call("list_sandboxes", map[string]any{"metadata": map[string]any{"by": m.Name()}, "status": "running"}, &list)
	if !slices.ContainsFunc(list.Sandboxes, func(b struct {
		ID string `json:"id"`
	}) bool {
		return b.ID == box.ID
	}) {
		m.Errorf("list: %+v", list)
	}
	if res := m.call("list_templates", nil, nil); !strings.Contains(textOf(res), "base") {
		m.Errorf("templates: %s", textOf(res))
	}
	m.call("delete_sandbox", in(map[string]any{}), nil)
	if code, text := m.failure("get_sandbox", in(map[string]any{})); code != "sandbox.not_found" || !strings.Contains(text, "hint: ") {
		m.Errorf("%s: %s", code, text)
	}
}

func (m *model) useFiles(in func(map[string]any) map[string]any) {
	m.call("write_file", in(map[string]any{"path": "work/a.txt", "content": "hello\n"}), nil)
	var file struct {
		Content, Encoding string
		Bytes             int
		Size              int64
		Truncated         bool
		NextOffset        int64 `json:"next_offset"`
	}
	m.call("read_file", in(map[string]any{"path": "work/a.txt"}), &file)
	if file.Content != "hello\n" || file.Encoding != "utf-8" || file.Size != 6 || file.Truncated {
		m.Errorf("read: %+v", file)
	}
	// A long file of characters of three bytes comes in whole characters.
	long := strings.Repeat("\u2603", 60_000)
	m.call("write_file", in(map[string]any{"path": "work/long", "content": long}), nil)
	var whole strings.Builder
	for parts := 0; ; parts++ {
		file.NextOffset, file.Truncated = 0, false
		m.call("read_file", in(map[string]any{"path": "work/long", "offset": whole.Len()}), &file)
		whole.WriteString(file.Content)
		if !file.Truncated {
			if parts != 2 || whole.String() != long {
				m.Errorf("%d parts, %d bytes", parts, whole.Len())
			}
			break
		}
		if file.NextOffset != int64(whole.Len()) || file.Bytes > 64<<10 {
			m.Fatalf("next %d after %d", file.NextOffset, whole.Len())
		}
	}
	m.call("write_file", in(map[string]any{"path": "work/bin", "content": "AP8B", "encoding": "base64"}), nil)
	m.call("read_file", in(map[string]any{"path": "work/bin"}), &file)
	if file.Content != "AP8B" || file.Encoding != "base64" {
		m.Errorf("binary: %+v", file)
	}
	m.call("run_command", in(map[string]any{"command": "mkdir many && cd many && seq 600 | xargs touch"}), nil)
	var dir struct {
		Entries []struct{ Path, Type string }
		Omitted int `json:"omitted_entries"`
	}
	m.call("list_dir", in(map[string]any{"path": "many"}), &dir)
	if len(dir.Entries) != 500 || dir.Omitted != 100 {
		m.Errorf("%d entries, %d left out", len(dir.Entries), dir.Omitted)
	}
}

func (m *model) useCommands(in func(map[string]any) map[string]any) {
	var r ran
	m.call("run_command", in(map[string]any{"command": "echo $A; cat; echo err >&2; exit 3", "env": map[string]any{"A": "b"}, "stdin": "c", "cwd": "/tmp"}), &r)
	if r.Stdout != "b\nc" || r.Stderr != "err\n" || r.ExitCode != 3 {
		m.Errorf("run: %+v", r)
	}
	r = ran{}
	res := m.call("run_command", in(map[string]any{"command": "seq 100000"}), &r)
	if len(r.Stdout) > 33<<10 || r.StdoutOmitted == 0 || !strings.HasPrefix(r.Stdout, "1\n2\n") || !strings.HasSuffix(r.Stdout, "\n100000\n") ||
		!strings.Contains(textOf(res), fmt.Sprintf("%d bytes left out", r.StdoutOmitted)) {
		m.Errorf("%d bytes, %d omitted: %.200s", len(r.Stdout), r.StdoutOmitted, r.Stdout)
	}
	r = ran{}
	m.call("run_command", in(map[string]any{"command": "echo before; sleep 600", "timeout_seconds": 1}), &r)
	if !r.TimedOut || r.ExitCode != 124 || r.Stdout != "before\n" {
		m.Errorf("timeout: %+v", r)
	}
	r = ran{}
	m.call("run_command", in(map[string]any{"command": "sleep 601", "background": true}), &r)
	if r.PID == 0 {
		m.Errorf("background: %+v", r)
	}
}

type codeRan struct {
	Stdout, Stderr string
	Results        []struct{ Text, Image, Chart string }
	Error          *struct{ Name, Value, Traceback string }
	TimedOut       bool  `json:"timed_out"`
	StdoutOmitted  int64 `json:"stdout_omitted_bytes"`
}

func (m *model) useCode(in func(map[string]any) map[string]any) {
	m.call("run_code", in(map[string]any{"code": "x = 40"}), nil)
	var r codeRan
	res := m.call("run_code", in(map[string]any{"code": "print('said')\nx + 2"}), &r)
	if r.Stdout != "said\n" || len(r.Results) != 1 || r.Results[0].Text != "42" || !strings.HasPrefix(textOf(res), "said\n42\n[ended after ") {
		m.Errorf("code: %+v, %s", r, textOf(res))
	}
	r = codeRan{}
	m.call("run_code", in(map[string]any{"code": "1/0"}), &r)
	if r.Error == nil || r.Error.Name != "ZeroDivisionError" || !strings.Contains(r.Error.Traceback, "1/0") {
		m.Errorf("an error: %+v", r)
	}
	r = codeRan{}
	m.call("run_code", in(map[string]any{"code": "print('y' * 1000000)"}), &r)
	if len(r.Stdout) > 33<<10 || r.StdoutOmitted < 900_000 {
		m.Errorf("%d bytes, %d left out", len(r.Stdout), r.StdoutOmitted)
	}
	r = codeRan{}
	m.call("run_code", in(map[string]any{"code": "import time; time.sleep(1000)", "timeout_seconds": 0.5}), &r)
	if !r.TimedOut {
		m.Errorf("timeout: %+v", r)
	}
	var c struct{ ID, Language, Cwd string }
	m.call("create_context", in(map[string]any{"language": "bash", "cwd": "/tmp", "env": map[string]any{"A": "b"}}), &c)
	r = codeRan{}
	m.call("run_code", in(map[string]any{"code": "echo $A $PWD", "context_id": c.ID}), &r)
	if c.Language != "bash" || r.Stdout != "b /tmp\n" {
		m.Errorf("a context: %+v, %+v", c, r)
	}
	if res := m.call("list_contexts", in(map[string]any{}), nil); !strings.Contains(textOf(res), c.ID+" bash in /tmp\n") {
		m.Errorf("contexts: %s", textOf(res))
	}
	m.call("delete_context", in(map[string]any{"context_id": c.ID}), nil)
	if res := m.call("list_contexts", in(map[string]any{}), nil); strings.Contains(textOf(res), c.ID) {
		m.Errorf("contexts after the end of one: %s", textOf(res))
	}
}

func (m *model) useProcesses(in func(map[string]any) map[string]any) {
	var r ran
	m.call("run_command", in(map[string]any{"command": "sleep 7777", "background": true}), &r)
	var list struct {
		Processes []struct {
			PID     int
			Command string
			Running bool
			Signal  string
		}
	}
	find := func(all bool) (running bool, signal string) {
		m.Helper()
		list.Processes = nil
		m.call("list_processes", in(map[string]any{"all": all}), &list)
		for _, p := range list.Processes {
			if p.PID == r.PID && strings.Contains(p.Command, "sleep 7777") {
				return p.Running, p.Signal
			}
		}
		return false, ""
	}
	if running, _ := find(false); !running {
		m.Errorf("processes: %+v, not %d", list, r.PID)
	}
	m.call("kill_process", in(map[string]any{"process": fmt.Sprint(r.PID)}), nil)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if running, signal := find(true); !running && signal == "SIGKILL" {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("it was killed and runs on: %+v", list)
		}
	}
}

// usePorts starts a service and opens it at the address that the tools give.
func (m *model) usePorts(in func(map[string]any) map[string]any) {
	m.call("run_command", in(map[string]any{"command": "mkdir -p site && echo served > site/x && cd site && exec python3 -m http.server 8123", "background": true}), nil)
	m.call("run_command", in(map[string]any{"command": "for i in $(seq 300); do curl -sf localhost:8123/x && exit; sleep 0.1; done; exit 1"}), nil)
	var list struct {
		Ports []struct {
			Port      int
			Listening bool
			URL       string
		}
	}
	m.call("list_ports", in(map[string]any{}), &list)
	var plain, signed struct {
		URL, Visibility string
		ExpiresAt       string `json:"expires_at"`
	}
	m.call("preview_url", in(map[string]any{"port": 8123}), &plain)
	m.call("preview_url", in(map[string]any{"port": 8123, "ttl_seconds": 60}), &signed)
	if len(list.Ports) != 1 || list.Ports[0].Port != 8123 || !list.Ports[0].Listening || list.Ports[0].URL != plain.URL || plain.Visibility != "public" || signed.ExpiresAt == "" {
		m.Errorf("ports %+v, preview %+v, signed %+v", list, plain, signed)
	}
	u, err := url.Parse(plain.URL)
	if err != nil {
		m.Fatal(err)
	}
	// The name of a preview need not resolve here: the server goes by it alone.
	req, err := http.NewRequestWithContext(m.Context(), "GET", "http://127.0.0.1:"+u.Port()+"/x", nil)
	if err != nil {
		m.Fatal(err)
	}
	req.Host = u.Host
	if status, body := fetch(m.T, req); status != 200 || body != "served\n" {
		m.Errorf("%s gives %d %q", plain.URL, status, body)
	}
}

func (m *model) useFailures(in func(map[string]any) map[string]any) {
	for _, c := range []struct {
		tool string
		args map[string]any
		code string
	}{
		{"read_file", in(map[string]any{"path": "none"}), "file.not_found"},
		{"read_file", in(map[string]any{"path": "/"}), "file.is_directory"},
		{"read_file", in(map[string]any{"path": "work/a.txt", "offset": 100}), "request.invalid"},
		{"read_file", in(map[string]any{}), "request.invalid"},
		{"read_file", in(map[string]any{"path": "x", "wrong": 1}), "request.invalid"},
		{"write_file", in(map[string]any{"path": "x", "content": "a", "encoding": "ebcdic"}), "request.invalid"},
		{"run_command", in(map[string]any{"command": ""}), "request.invalid"},
		{"run_command", in(map[string]any{"command": "true", "timeout_seconds": 1e6}), "request.invalid"},
		{"run_command", map[string]any{"sandbox_id": "none", "command": "true"}, "sandbox.not_found"},
		{"run_code", in(map[string]any{"code": "1", "context_id": "none"}), "context.not_found"},
		{"run_code", in(map[string]any{"code": "1", "language": "cobol"}), "request.invalid"},
		{"run_code", in(map[string]any{"code": "1", "timeout_seconds": 1e6}), "request.invalid"},
		{"delete_context", in(map[string]any{"context_id": "none"}), "context.not_found"},
		{"preview_url", in(map[string]any{"port": 70000}), "request.invalid"},
		{"preview_url", in(map[string]any{"port": 8000, "ttl_seconds": 1e7}), "request.invalid"},
		{"kill_process", in(map[string]any{"process": "999999"}), "process.not_found"},
		{"list_processes", map[string]any{"sandbox_id": "none"}, "sandbox.not_found"},
		{"create_sandbox", map[string]any{"template": "no-such-template"}, "template.not_found"},
		{"list_sandboxes", map[string]any{"status": "asleep"}, "request.invalid"},
		{"fork_sandbox", in(map[string]any{"count": 1000}), "request.invalid"},
		{"restore_sandbox", in(map[string]any{"checkpoint": "none"}), "snapshot.not_found"},
	} {
		if code, text := m.failure(c.tool, c.args); code != c.code || !strings.HasPrefix(text, c.code+": ") || !strings.Contains(text, "\nhint: ") {
			m.Errorf("%s %v: %s: %q, want %s", c.tool, c.args, code, text, c.code)
		}
	}
}

func (m *model) useBranches(in func(map[string]any) map[string]any) {
	m.call("checkpoint_sandbox", in(map[string]any{"name": "before"}), nil)
	m.call("run_command", in(map[string]any{"command": "rm -rf work"}), nil)
	m.call("restore_sandbox", in(map[string]any{"checkpoint": "before"}), nil)
	var snap struct{ ID string }
	m.call("snapshot_sandbox", in(map[string]any{"files_only": true}), &snap)
	var list struct{ Snapshots []struct{ ID, Kind string } }
	m.call("list_snapshots", in(map[string]any{}), &list)
	if len(list.Snapshots) != 2 || list.Snapshots[0].ID != snap.ID || list.Snapshots[1].Kind != "checkpoint" {
		m.Errorf("snapshots %+v of %s", list, snap.ID)
	}
	var fork struct{ Children []struct{ ID string } }
	m.call("fork_sandbox", in(map[string]any{"count": 2}), &fork)
	if len(fork.Children) != 2 {
		m.Fatalf("fork: %+v", fork)
	}
	for _, child := range fork.Children {
		m.call("read_file", map[string]any{"sandbox_id": child.ID, "path": "work/a.txt"}, nil)
		m.call("delete_sandbox", map[string]any{"sandbox_id": child.ID}, nil)
	}
	m.call("hibernate_sandbox", in(map[string]any{}), nil)
	var r ran
	m.call("run_command", in(map[string]any{"command": "cat work/a.txt"}), &r) // wakes it
	if r.Stdout != "hello\n" {
		m.Errorf("after sleep: %+v", r)
	}
}

// TestMCPSandbox: the tools of one sandbox, over HTTP and stdio.
func TestMCPSandbox(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	want := []string{"create_context", "delete_context", "kill_process", "list_contexts", "list_dir", "list_ports", "list_processes", "preview_url", "read_file", "run_code", "shell", "write_file"}
	for name, m := range map[string]*model{
		"http":  s.model(t, "/v1/sandboxes/"+sb.ID+"/mcp"),
		"stdio": s.stdioModel(t, "--sandbox", sb.ID),
	} {
		if got := m.toolNames(); !slices.Equal(got, want) {
			t.Errorf("%s: tools %v", name, got)
		}
		var r ran
		m.call("shell", map[string]any{"command": "echo $((6*7))"}, &r)
		if r.Stdout != "42\n" {
			t.Errorf("%s: %+v", name, r)
		}
		var c codeRan
		m.call("run_code", map[string]any{"code": "6*7"}, &c)
		if len(c.Results) != 1 || c.Results[0].Text != "42" {
			t.Errorf("%s: %+v", name, c)
		}
		m.call("list_processes", nil, nil)
		m.call("write_file", map[string]any{"path": name, "content": "x"}, nil)
		if res := m.call("list_dir", nil, nil); !strings.Contains(textOf(res), name) {
			t.Errorf("%s: %s", name, textOf(res))
		}
	}
	_, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: s.addr + "/v1/sandboxes/none/mcp", HTTPClient: &http.Client{Transport: bearer{s.key}},
	}, nil)
	if err == nil {
		t.Error("there is no such sandbox, and it has tools")
	}
}

// TestMCPPlot: a plot reaches the model as a picture, over HTTP and stdio.
func TestMCPPlot(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{Template: "code-interpreter"})
	for name, m := range map[string]*model{
		"http":  s.model(t, "/v1/sandboxes/"+sb.ID+"/mcp"),
		"stdio": s.stdioModel(t, "--sandbox", sb.ID),
	} {
		var r codeRan
		res := m.call("run_code", map[string]any{"code": "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.title('Squares'); plt.show()"}, &r)
		if len(r.Results) != 1 || r.Results[0].Image != "image/png" || !strings.Contains(r.Results[0].Chart, `"Squares"`) || len(res.Content) != 2 {
			t.Fatalf("%s: %+v, %d pieces of content", name, r, len(res.Content))
		}
		img, ok := res.Content[1].(*sdk.ImageContent)
		if !ok || img.MIMEType != "image/png" {
			t.Fatalf("%s: %T", name, res.Content[1])
		}
		if picture, err := png.Decode(bytes.NewReader(img.Data)); err != nil || picture.Bounds().Dx() < 100 {
			t.Errorf("%s: the picture: %v", name, err)
		}
	}
}

// TestMCPCancel: a call that its client gives up, or whose client is gone, ends
// the command that it runs.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	running := func(what string) bool {
		return sh(t, sb, "pgrep -fx '"+what+"' | wc -l") != "0"
	}
	await := func(name, what string, want bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); running(what) != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s runs: %v", name, what, !want)
			}
		}
	}
	for i, m := range []*model{s.model(t, "/mcp"), s.stdioModel(t), s.oldModel(t)} {
		name, what := fmt.Sprintf("client %d", i), fmt.Sprintf("sleep %d", 7000+i)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := m.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"sandbox_id": sb.ID, "command": "exec " + what, "timeout_seconds": 3000}})
			ended <- err
		}()
		await(name, what, true)
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: the call worked", name)
		}
		await(name, what, false)
	}
}

// oldModel is a client of a version of the protocol with sessions.
func (s *server) oldModel(t *testing.T) *model {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.addr + "/mcp", HTTPClient: &http.Client{Transport: bearer{s.key}}},
		&sdk.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != "2025-06-18" {
		t.Fatalf("version %s", got)
	}
	return &model{t, session}
}

func fetch(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// rpc is a request of a client that is written by hand.
func rpc(t *testing.T, ctx context.Context, method, url, body string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

const (
	rpcInitialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	rpcInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	rpcList        = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
)

// handSession begins a session and gives its id.
func (s *server) handSession(t *testing.T, path string, auth ...string) string {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(rpc(t, t.Context(), "POST", s.addr+path, rpcInitialize, auth...))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	id := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != 200 || id == "" || !strings.Contains(string(body), `"2025-06-18"`) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if status, body := fetch(t, rpc(t, t.Context(), "POST", s.addr+path, rpcInitialized, append(auth, "Mcp-Session-Id", id)...)); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	return id
}

// TestMCPSessions: a session belongs to the key and the endpoint it was begun
// with, and ends when it is deleted. All that is refused has a code.
func TestMCPSessions(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	other, err := s.client().Tokens.Create(t.Context(), api.CreateToken{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	mine := []string{"Authorization", "Bearer " + s.key}
	id := s.handSession(t, "/mcp", mine...)
	boxed := s.handSession(t, "/v1/sandboxes/"+sb.ID+"/mcp", "X-API-Key", s.key)
	for name, c := range map[string]struct {
		method, path, key, session, body string
		status                           int
		want                             string
	}{
		"mine":           {"POST", "/mcp", s.key, id, rpcList, 200, "create_sandbox"},
		"alias":          {"POST", "/v1/mcp", s.key, id, rpcList, 200, "create_sandbox"},
		"another key":    {"POST", "/mcp", other.Key, id, rpcList, 404, `"mcp.session_not_found"`},
		"its stream":     {"GET", "/mcp", other.Key, id, "", 404, `"mcp.session_not_found"`},
		"its end":        {"DELETE", "/mcp", other.Key, id, "", 404, `"mcp.session_not_found"`},
		"unknown":        {"POST", "/mcp", s.key, "none", rpcList, 404, `"mcp.session_not_found"`},
		"other endpoint": {"POST", "/mcp", s.key, boxed, rpcList, 404, `"mcp.session_not_found"`},
		"no key":         {"POST", "/mcp", "", id, rpcList, 401, `"auth.invalid_token"`},
		"no JSON":        {"POST", "/mcp", s.key, id, "{", 400, `"request.invalid"`},
		"too large":      {"POST", "/mcp", s.key, id, strings.Repeat(" ", 5<<20), 413, `"request.too_large"`},
		"no session":     {"GET", "/mcp", s.key, "", "", 400, `"request.invalid"`},
		"method":         {"PUT", "/mcp", s.key, id, rpcList, 405, `"request.method_not_allowed"`},
		"in a sandbox":   {"POST", "/v1/sandboxes/" + sb.ID + "/mcp", s.key, boxed, rpcList, 200, `"shell"`},
	} {
		h := []string{"Authorization", "Bearer " + c.key}
		if c.key == "" {
			h = nil
		}
		if c.session != "" {
			h = append(h, "Mcp-Session-Id", c.session)
		}
		if status, body := fetch(t, rpc(t, t.Context(), c.method, s.addr+c.path, c.body, h...)); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %.300s", name, status, body)
		}
	}
	mine = append(mine, "Mcp-Session-Id", id)
	if status, body := fetch(t, rpc(t, t.Context(), "DELETE", s.addr+"/mcp", "", mine...)); status != 204 {
		t.Errorf("delete: %d %s", status, body)
	}
	if status, _ := fetch(t, rpc(t, t.Context(), "POST", s.addr+"/mcp", rpcList, mine...)); status != 404 {
		t.Errorf("after its end: %d", status)
	}
}

// TestMCPVanished: a client that is cut off says nothing any more, and the
// command it was waiting for ends.
func TestMCPVanished(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	auth := []string{"Authorization", "Bearer " + s.key}
	auth = append(auth, "Mcp-Session-Id", s.handSession(t, "/mcp", auth...))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_command","arguments":{"sandbox_id":"` + sb.ID + `","command":"exec sleep 8000"}}}`
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultTransport.RoundTrip(rpc(t, ctx, "POST", s.addr+"/mcp", call, auth...)); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	for _, want := range []string{"1", "0"} {
		for deadline := time.Now().Add(time.Minute); sh(t, sb, "pgrep -fx 'sleep 8000' | wc -l") != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("there are not %s commands", want)
			}
		}
		cancel()
	}
	<-gone
}

// TestMCPHangUp: when a desktop client ends, the program that it started ends, and
// the command under way with it.
func TestMCPHangUp(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	cmd := program("mcp", "--sandbox", sb.ID)
	cmd.Env = append(os.Environ(), api.EnvBaseURL+"="+s.addr, api.EnvAPIKey+"="+s.key)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{rpcInitialize, rpcInitialized,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell","arguments":{"command":"exec sleep 8100"}}}`} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	await := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); sh(t, sb, "pgrep -fx 'sleep 8100' | wc -l") != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("there are not %s commands", want)
			}
		}
	}
	await("1")
	in.Close()
	late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program: %v", err)
	}
	await("0")
}
