package httpapi

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/mcp"
)

// TestUse: every request about a sandbox is a use of it by the caller while it is
// served, but for those that only look at its record and those that end its being
// awake.
func TestUse(t *testing.T) {
	t.Parallel()
	none := map[string]bool{
		"GET ": true, "DELETE ": true, "GET /events": true, "GET /metrics": true, "GET /lifecycle": true, "GET /tree": true,
		"GET /snapshots": true, "GET /checkpoints": true, "POST /hibernate": true,
		"GET /mcp": true, "DELETE /mcp": true,
		"GET /ports": true, "POST /ports": true, "DELETE /ports": true, "POST /preview": true, "POST /preview-token": true,
		"GET /network": true, "PUT /network": true, "GET /network/log": true, "GET /ssh": true,
	}
	seen := 0
	for _, r := range serve(t, &wire{}).api.routes() {
		f := &wire{err: api.Errorf(api.CodeSandboxState, "not now")}
		b := serve(t, f)
		path := strings.NewReplacer("{id}", "k3v9x0q2m7c1b8n4t6zd", "{name}", "x", "{prefix}", "x", "{snapshot}", "x", "{checkpoint}", "x", "{pid}", "7").Replace(r.path)
		if strings.HasSuffix(path, "/fs") || strings.Contains(path, "/fs/") {
			path += "?path=x"
		}
		b.read(b.do(r.method, path, ""))
		want := 0
		if rest, ok := strings.CutPrefix(path, box); ok && !none[r.method+" "+rest] {
			want = 1
			seen++
		}
		// An answer may be read before the handler has returned.
		using := func() (n int) { f.note(func() { n = f.using }); return n }
		for end := time.Now().Add(10 * time.Second); using() != 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		f.note(func() {
			if len(f.uses) != want || f.using != 0 || want == 1 && f.uses[0] != "o k3v9x0q2m7c1b8n4t6zd" {
				t.Errorf("%s %s: used %v, %d without end; want %d", r.method, path, f.uses, f.using, want)
			}
		})
	}
	if seen < 20 {
		t.Errorf("only %d routes use a sandbox", seen)
	}
	f := &wire{}
	b := serve(t, f)
	b.failure(b.do("POST", box+"/exec", `{"cmd":"true"}`, "Authorization", ""), api.CodeInvalidToken)
	if f.uses != nil {
		t.Error("a stranger used the sandbox")
	}
}

// TestUseByOthers: tools of models and signed URLs use a sandbox as their caller,
// so that only the owner's use is counted.
func TestUseByOthers(t *testing.T) {
	t.Parallel()
	f := &wire{err: api.Errorf(api.CodeSandboxNotFound, "no")}
	b := serve(t, f)
	b.api.SignSecret = []byte("a secret of the server's")
	ctx, id := t.Context(), "k3v9x0q2m7c1b8n4t6zd"
	p := &mcpPlatform{api: b.api, who: auth.Identity{Org: "stranger"}}
	signed := func(method string) error {
		token, err := signGrant(b.api.SignSecret, grant{Sandbox: id, Org: "stranger", Method: method, Path: "/a", Expires: time.Now().Unix() + 600})
		if err == nil {
			b.failure(b.do(method, signedPath+"?token="+token, "", "Authorization", ""), api.CodeSandboxNotFound)
			err = f.err
		}
		return err
	}
	for name, call := range map[string]func() error{
		"run":        func() error { _, err := p.Run(ctx, id, api.Exec{Background: true}, nil, nil); return err },
		"read":       func() error { _, _, err := p.ReadFile(ctx, id, mcp.File{}, 0); return err },
		"write":      func() error { return p.WriteFile(ctx, id, mcp.File{}, nil) },
		"list":       func() error { _, err := p.ListDir(ctx, id, mcp.File{}, 1); return err },
		"fork":       func() error { _, err := p.Fork(ctx, id, api.Fork{}); return err },
		"snapshot":   func() error { _, err := p.Snapshot(ctx, id, api.CreateSnapshot{}); return err },
		"checkpoint": func() error { _, err := p.Checkpoint(ctx, id, "x"); return err },
		"restore":    func() error { _, err := p.Restore(ctx, id, "x"); return err },
		"code":       func() error { return p.RunCode(ctx, id, api.RunCode{}, nil) },
		"processes":  func() error { _, err := p.Processes(ctx, id, true); return err },
		"signed GET": func() error { return signed("GET") },
		"signed PUT": func() error { return signed("PUT") },
	} {
		f.note(func() { f.uses = nil })
		if err := call(); api.CodeOf(err) != api.CodeSandboxNotFound {
			t.Errorf("%s: %v", name, err)
		}
		f.note(func() {
			if !slices.Equal(f.uses, []string{"stranger " + id}) || f.using != 0 {
				t.Errorf("%s: used %q, %d without end", name, f.uses, f.using)
			}
		})
	}
}

// TestStreamsAreUse: the use lasts as long as the stream, and ends also when the
// handler panics.
func TestStreamsAreUse(t *testing.T) {
	t.Parallel()
	f := &wire{}
	using := func() (n int) { f.note(func() { n = f.using }); return n }
	during := make(chan int, 1)
	f.stream = func(ctx context.Context, emit func(api.ExecEvent) error) error {
		emit(api.ExecEvent{Type: "start", PID: 1})
		during <- using()
		return emit(api.ExecEvent{Type: "exit", Result: &api.ExecResult{}})
	}
	b := serve(t, f)
	b.read(b.do("POST", box+"/exec/stream", `{"cmd":"x"}`))
	if n := <-during; n != 1 {
		t.Errorf("%d uses during the stream", n)
	}
	b.eventually("the end of the stream's use", func() bool { return using() == 0 })

	conn, _, err := websocket.Dial(t.Context(), b.url+box+"/exec/ws", &websocket.DialOptions{HTTPHeader: map[string][]string{"X-API-Key": {userKey}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if n := using(); n != 1 {
		t.Errorf("%d uses during the connection", n)
	}
	conn.CloseNow()
	b.eventually("the end of the connection's use", func() bool { return using() == 0 })

	f.stream = func(context.Context, func(api.ExecEvent) error) error { panic("kaboom") }
	b.failure(b.do("POST", box+"/exec/stream", `{"cmd":"x"}`), api.CodeInternal)
	b.eventually("the end of the panic's use", func() bool { return using() == 0 })
}
