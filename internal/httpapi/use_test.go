package httpapi

import (
	"context"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// TestUse: every request about a sandbox is a use of it while it is served, but
// for those that only look at its record and those that end its being awake.
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
		f.note(func() {
			if len(f.uses) != want || f.using != 0 || want == 1 && f.uses[0] != "k3v9x0q2m7c1b8n4t6zd" {
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
