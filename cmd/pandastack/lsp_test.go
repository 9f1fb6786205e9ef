//go:build linux

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/client"
	"github.com/pandastack/pandastack/internal/lsp"
)

// coder is an editor on its connection to a language server.
type coder struct {
	*testing.T
	conn   *websocket.Conn
	framed bool // messages have headers and come in pieces, as on a pipe
	in     lsp.Decoder
}

func (s *server) editor(t *testing.T, sandbox, lang string, framed bool) *coder {
	t.Helper()
	o := &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + s.key}}}
	if !framed { // as browsers do
		o = &websocket.DialOptions{Subprotocols: []string{"lsp", "bearer." + s.key}}
	}
	conn, resp, err := websocket.Dial(t.Context(), s.addr+"/v1/sandboxes/"+sandbox+"/lsp/"+lang, o)
	if err != nil {
		t.Fatalf("%v, %+v", err, resp)
	}
	if !framed && conn.Subprotocol() != "lsp" {
		t.Errorf("subprotocol %q", conn.Subprotocol())
	}
	conn.SetReadLimit(16 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	return &coder{T: t, conn: conn, framed: framed}
}

func (c *coder) say(text string) {
	c.Helper()
	pieces := []string{text}
	kind := websocket.MessageText
	if c.framed {
		framed := string(lsp.Frame([]byte(text)))
		pieces, kind = []string{framed[:5], framed[5 : len(framed)-3], framed[len(framed)-3:]}, websocket.MessageBinary
	}
	for _, p := range pieces {
		if err := c.conn.Write(c.Context(), kind, []byte(p)); err != nil {
			c.Fatal(err)
		}
	}
}

type lspMessage struct {
	ID     any
	Method string
	Params json.RawMessage
	Result struct {
		ServerInfo struct{ Version string }
		Contents   string
	}
}

// hear waits for the next message, or the end of the connection.
func (c *coder) hear() (m lspMessage, err error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	kind, data, err := c.conn.Read(ctx)
	if err != nil {
		return m, err
	}
	if c.framed {
		c.in.Write(data)
		if data, err = c.in.Next(); err != nil || data == nil || kind != websocket.MessageBinary {
			c.Fatalf("a message of kind %v is not one frame: %q, %v", kind, data, err)
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		c.Fatalf("%v: %q", err, data)
	}
	return m, nil
}

func (c *coder) expect() lspMessage {
	c.Helper()
	m, err := c.hear()
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// begin initializes and gives the process of the server.
func (c *coder) begin() string {
	c.Helper()
	c.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":1,"capabilities":{}}}`)
	m := c.expect()
	c.say(`{"jsonrpc":"2.0","method":"initialized","params":{}}`)
	return m.Result.ServerInfo.Version
}

func (c *coder) hover() string {
	c.Helper()
	c.say(`{"jsonrpc":"2.0","id":"h","method":"textDocument/hover","params":{"textDocument":{"uri":"file:///a.py"}}}`)
	for {
		if m := c.expect(); m.ID == "h" {
			return m.Result.Contents
		}
	}
}

func (c *coder) open(text string) {
	c.say(`{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///a.py","languageId":"python","version":1,"text":"` + text + `"}}}`)
}

// installServer puts the test's language server where an installer would.
func installServer(t *testing.T, sb *client.Sandbox) {
	t.Helper()
	script, err := os.ReadFile("testdata/lsp_server.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.WriteFile(t.Context(), ".local/bin/pylsp", script); err != nil {
		t.Fatal(err)
	}
	sh(t, sb, "chmod +x .local/bin/pylsp")
}

// TestLanguageServer: two editors share a server, whose documents and answers
// stay apart; it survives the one that leaves, and is replaced when it crashes.
func TestLanguageServer(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	installServer(t, sb)
	a, b := s.editor(t, sb.ID, "python", true), s.editor(t, sb.ID, "py", false)
	pid := a.begin()
	if got := b.begin(); got != pid || pid == "" {
		t.Fatalf("servers %q and %q", pid, got)
	}
	a.open("from a")
	for _, e := range []*coder{a, b} {
		if m := e.expect(); m.Method != "textDocument/publishDiagnostics" || !strings.Contains(string(m.Params), "open: 1") {
			t.Errorf("%+v", m)
		}
	}
	if got := b.hover(); got != "from a" {
		t.Errorf("b sees %q", got)
	}
	b.open("from b")
	if got := b.hover(); got != "from b" {
		t.Errorf("b sees %q", got)
	}
	a.say(`{"jsonrpc":"2.0","id":2,"method":"shutdown"}`)
	a.expect()
	a.say(`{"jsonrpc":"2.0","method":"exit"}`)
	if _, err := a.hear(); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("after exit: %v", err)
	}
	if got := b.hover(); got != "from b" {
		t.Errorf("without a, b sees %q", got)
	}
	b.conn.CloseNow() // it vanishes, and comes again
	b = s.editor(t, sb.ID, "python", false)
	if got := b.begin(); got != pid {
		t.Errorf("server %q, before it was %q", got, pid)
	}
	if got := b.hover(); got != "closed" {
		t.Errorf("the document of one that left: %q", got)
	}

	b.say(`{"jsonrpc":"2.0","id":3,"method":"test/crash"}`)
	_, err := b.hear()
	if websocket.CloseStatus(err) != websocket.StatusPolicyViolation || !strings.Contains(err.Error(), "sandbox.died") {
		t.Errorf("after a crash: %v", err)
	}
	if got := s.editor(t, sb.ID, "python", true).begin(); got == pid || got == "" {
		t.Errorf("the new server is %q", got)
	}
}

// TestLanguageServerBridge: the program is a language server for an editor that
// starts one, and ends as one does.
func TestLanguageServerBridge(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	installServer(t, sb)
	begin := func() (*exec.Cmd, io.WriteCloser, func() lspMessage) {
		cmd := program("sandbox", "lsp", sb.ID, "python")
		cmd.Env = append(os.Environ(), api.EnvBaseURL+"="+s.addr, api.EnvAPIKey+"="+s.key)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
		t.Cleanup(func() { late.Stop() })
		var d lsp.Decoder
		buf := make([]byte, 64<<10)
		return cmd, in, func() (m lspMessage) {
			for {
				data, err := d.Next()
				if err != nil {
					t.Fatal(err)
				}
				if data != nil {
					if err := json.Unmarshal(data, &m); err != nil {
						t.Fatal(err)
					}
					return m
				}
				n, err := out.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				d.Write(buf[:n])
			}
		}
	}
	say := func(w io.Writer, text string) {
		if _, err := w.Write(lsp.Frame([]byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	cmd, in, hear := begin()
	say(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":1,"capabilities":{}}}`)
	if m := hear(); m.Result.ServerInfo.Version == "" {
		t.Errorf("initialize: %+v", m)
	}
	say(in, `{"jsonrpc":"2.0","id":2,"method":"shutdown"}`)
	hear()
	say(in, `{"jsonrpc":"2.0","method":"exit"}`)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after exit: %v", err)
	}
	cmd, in, hear = begin()
	say(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":1,"capabilities":{}}}`)
	hear()
	in.Close() // the editor has died
	if err := cmd.Wait(); err != nil {
		t.Errorf("after the end of the input: %v", err)
	}
	cmd, in, _ = begin()
	if _, err := io.WriteString(in, "this is no message\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("what is no message is no failure")
	}
	if _, err := sb.LanguageServer(t.Context(), "cobol"); api.CodeOf(err) != api.CodeLSPLanguage {
		t.Errorf("a language that is none: %v", err)
	}
	if _, err := sb.LanguageServer(t.Context(), "go"); api.CodeOf(err) != api.CodeLSPNotInstalled {
		t.Errorf("a server that is not there: %v", err)
	}
}

// TestLanguageServerLeftOver: in a fork the server of the parent runs on, and
// nobody talks to it; it is ended for a new one.
func TestLanguageServerLeftOver(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	installServer(t, sb)
	pid := s.editor(t, sb.ID, "python", true).begin()
	child, err := sb.Fork(t.Context(), api.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Delete(context.Background())
	if got := sh(t, child, "pgrep -f [b]in/pylsp"); got != pid {
		t.Fatalf("in the child runs %q, in the parent %q", got, pid)
	}
	again := s.editor(t, child.ID, "python", true).begin()
	if got := sh(t, child, "pgrep -f [b]in/pylsp"); got != again || again == pid {
		t.Errorf("in the child runs %q, want %q", got, again)
	}
}

func TestLanguageServerRefusals(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	sb := create(t, s, api.CreateSandbox{})
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/sandboxes/" + sb.ID + "/lsp/go":       {409, `"lsp.not_installed"`},
		"/v1/sandboxes/" + sb.ID + "/lsp/cobol":    {404, `"lsp.unknown_language"`},
		"/v1/sandboxes/none/lsp/go":                {404, `"sandbox.not_found"`},
		"/v1/sandboxes/" + sb.ID + "/lsp/js?x=1":   {400, `"request.`},
		"/v1/sandboxes/" + sb.ID + "/lsp/go/extra": {404, `"request.not_found"`},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.addr+path, nil)
		for k, v := range map[string]string{
			"Authorization": "Bearer " + s.key, "Connection": "Upgrade", "Upgrade": "websocket",
			"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		} {
			req.Header.Set(k, v)
		}
		status, body := fetch(t, req)
		if status != want.status || !strings.Contains(body, want.code) || !strings.Contains(body, `"hint"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	e := func() *coder { installServer(t, sb); return s.editor(t, sb.ID, "python", true) }()
	if err := e.conn.Write(t.Context(), websocket.MessageBinary, []byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.hear(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation || !strings.Contains(err.Error(), "request.invalid") {
		t.Errorf("what is no frame: %v", err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.addr+"/v1/lsp/languages", nil)
	req.Header.Set("Authorization", "Bearer "+s.key)
	var list api.LSPLanguageList
	_, body := fetch(t, req)
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Languages) != 3 || list.Languages[1].ID != "python" || list.Languages[1].Servers[0].Install == "" {
		t.Errorf("%v: %s", err, body)
	}
}
